// React's side of the streams: the newest table of a view, every node of the cluster, and one answer asked again and again.

import { useEffect, useMemo, useState } from 'react'
import { Refusal, ask } from '../api/client'
import type { NodeView, Page } from '../api/views'
import { type Line, type Live, follow } from './follow'
import { repeat } from './repeat'

const NODES_PER_PAGE = 500
const NODES_AGAIN_MS = 4000

/** Follow a view. While a new query is on its way the old rows stay, marked stale. */
export function useLive<T>(view: string, query = ''): Live<T> & { isStale: boolean } {
  const [shown, setShown] = useState<{ query: string; live: Live<T> }>({ query, live: NOTHING as Live<T> })
  useEffect(() => {
    return follow<T>(view, query, (live) => {
      setShown((before) => ({ query, live: live.table ? live : { ...live, table: before.live.table } }))
    })
  }, [view, query])
  return { ...shown.live, isStale: shown.query !== query || shown.live.line === 'connecting' }
}

const NOTHING: Live<never> = { table: null, line: 'connecting', problem: '' }

/** All nodes: the first page live, the pages of a larger cluster asked for again every few seconds. */
export function useNodes(): { nodes: readonly NodeView[] | null; total: number; line: Line; problem: string } {
  const first = useLive<NodeView>('nodes', `limit=${NODES_PER_PAGE}`)
  const [rest, setRest] = useState<readonly NodeView[]>([])
  const next = first.table?.next ?? ''
  useEffect(() => {
    if (!next) {
      setRest([])
      return
    }
    return repeat(NODES_AGAIN_MS, async (signal) => {
      const found: NodeView[] = []
      for (let after = next; after; ) {
        const page = await ask<Page<NodeView>>(`/nodes?limit=${NODES_PER_PAGE}&after=${encodeURIComponent(after)}`, signal)
        found.push(...page.items)
        after = page.next
      }
      setRest(found)
    })
  }, [next])
  const rows = first.table?.rows
  const nodes = useMemo(() => (rows ? [...rows, ...rest] : null), [rows, rest])
  return { nodes, total: first.table?.total ?? 0, line: first.line, problem: first.problem }
}

export interface Answer<T> {
  value: T | null
  problem: string
}

/** Ask for `path` now, when `version` changes, and every so often; an empty path asks for nothing. */
export function useAnswer<T>(path: string, everyMs: number, version = ''): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T> & { path: string }>({ path, value: null, problem: '' })
  useEffect(() => {
    if (!path) return
    return repeat(everyMs, async (signal) => {
      try {
        setAnswer({ path, value: await ask<T>(path, signal), problem: '' })
      } catch (error) {
        if (signal.aborted) return
        const problem = error instanceof Refusal ? error.message : String(error)
        setAnswer((before) => ({ path, value: before.path === path ? before.value : null, problem }))
      }
    })
  }, [path, everyMs, version])
  return answer.path === path ? answer : { value: null, problem: '' }
}
