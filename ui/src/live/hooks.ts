// React hooks for the streams: the newest table of a view, every node of the cluster, and one answer that is polled.

import { useEffect, useMemo, useState } from 'react'
import { ApiError, getJson } from '../api/client'
import type { NodeView, Page } from '../api/views'
import { type ConnectionState, type Live, follow } from './follow'
import { repeat } from './repeat'

const NODES_PER_PAGE = 2000
const NODES_AGAIN_MS = 4000

/** Follow a view. While a new query is on its way the old rows stay, marked stale. */
export function useLive<T>(view: string, query = ''): Live<T> & { isStale: boolean } {
  const [shown, setShown] = useState<{ query: string; live: Live<T> }>({ query, live: NOTHING as Live<T> })
  useEffect(() => {
    return follow<T>(view, query, (live) => {
      setShown((before) => ({ query, live: live.table ? live : { ...live, table: before.live.table } }))
    })
  }, [view, query])
  return { ...shown.live, isStale: shown.query !== query || shown.live.connection === 'connecting' }
}

const NOTHING: Live<never> = { table: null, connection: 'connecting', problem: '' }

/** All nodes: the first page live, the pages of a larger cluster asked for again every few seconds. */
export function useNodes(): { nodes: readonly NodeView[] | null; total: number; connection: ConnectionState; problem: string } {
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
        const page = await getJson<Page<NodeView>>(`/nodes?limit=${NODES_PER_PAGE}&after=${encodeURIComponent(after)}`, signal)
        found.push(...page.items)
        after = page.next
      }
      setRest(found)
    })
  }, [next])
  const rows = first.table?.rows
  const nodes = useMemo(() => (rows ? [...rows, ...rest] : null), [rows, rest])
  return { nodes, total: first.table?.total ?? 0, connection: first.connection, problem: first.problem }
}

export interface Polled<T> {
  value: T | null
  problem: string
}

/** Get `path` now, when `version` changes, and every so often; an empty path gets nothing. */
export function usePolled<T>(path: string, everyMs: number, version = ''): Polled<T> {
  const [answer, setAnswer] = useState<Polled<T> & { path: string }>({ path, value: null, problem: '' })
  useEffect(() => {
    if (!path) return
    return repeat(everyMs, async (signal) => {
      try {
        setAnswer({ path, value: await getJson<T>(path, signal), problem: '' })
      } catch (error) {
        if (signal.aborted) return
        const problem = error instanceof ApiError ? error.message : String(error)
        setAnswer((before) => ({ path, value: before.path === path ? before.value : null, problem }))
      }
    })
  }, [path, everyMs, version])
  return answer.path === path ? answer : { value: null, problem: '' }
}
