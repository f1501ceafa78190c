// Follow one view of the API for as long as somebody looks.
//
// In: a view and its query. Out: calls of `tell` with the newest table and the state of the line.
// Never: gives up. The browser reconnects a stream by itself and resumes it with Last-Event-ID; where it will not (the
// server answered with an error), we open a new one, which begins with a `reset`. A window that has to leave the streams
// to another one asks for the same page again and again.

import { BASE, Refusal, ask } from '../api/client'
import type { Page, StatusView } from '../api/views'
import { repeat } from './repeat'
import { type Delta, type Reset, type Table, applyDelta, fromReset } from './table'
import { followTurn } from './turn'

export type Line = 'connecting' | 'live' | 'reconnecting'

export interface Live<T> {
  table: Table<T> | null
  line: Line
  problem: string // why the server refuses this view; empty while it does not
}

const FIRST_RETRY_MS = 500
const LAST_RETRY_MS = 4000
const ASK_AGAIN_MS = 2000

/** Starts to follow; the function it returns stops. */
export function follow<T>(view: string, query: string, tell: (live: Live<T>) => void): () => void {
  let live: Live<T> = { table: null, line: 'connecting', problem: '' }
  const say = (change: Partial<Live<T>>) => {
    live = { ...live, ...change }
    tell(live)
  }
  const down = (problem: string) => say({ line: live.table ? 'reconnecting' : 'connecting', problem })
  let stop = () => {}
  const leave = followTurn((way) => {
    stop()
    stop = () => {}
    if (way === 'stream') stop = stream(view, query, () => live.table, say, down)
    if (way === 'ask') stop = askAgain(view, query, say, down)
  })
  return () => {
    leave()
    stop()
  }
}

type Say<T> = (change: Partial<Live<T>>) => void

function stream<T>(view: string, query: string, table: () => Table<T> | null, say: Say<T>, down: (problem: string) => void) {
  let source: EventSource
  let retry = FIRST_RETRY_MS
  let timer: number | undefined

  const open = () => {
    source = new EventSource(`${BASE}/stream?view=${view}${query && `&${query}`}`)
    source.addEventListener('reset', (event) => {
      retry = FIRST_RETRY_MS
      say({ table: fromReset(JSON.parse(event.data) as Reset<T>), line: 'live', problem: '' })
    })
    source.addEventListener('delta', (event) => {
      const before = table()
      if (before) say({ table: applyDelta(before, JSON.parse(event.data) as Delta<T>), line: 'live' })
    })
    source.addEventListener('open', () => {
      if (table()) say({ line: 'live', problem: '' }) // resumed: nothing need have changed
    })
    source.addEventListener('error', () => {
      if (source.readyState === EventSource.CLOSED) void explainThenReopen()
      else down('')
    })
  }

  /** An EventSource hides the server's answer, so the same view is asked for once in the plain way. */
  const explainThenReopen = async () => {
    const refused = source
    down('')
    timer = window.setTimeout(open, retry)
    retry = Math.min(retry * 2, LAST_RETRY_MS)
    const problem = await askOnce(view, query).then(() => '', problemOf)
    if (source === refused) down(problem)
  }

  open()
  return () => {
    window.clearTimeout(timer)
    source.close()
  }
}

function askAgain<T>(view: string, query: string, say: Say<T>, down: (problem: string) => void) {
  return repeat(ASK_AGAIN_MS, async (signal) => {
    try {
      const page = (await askOnce(view, query, signal)) as Page<T>
      say({ table: fromReset({ view, key: '', ...page }), line: 'live', problem: '' })
    } catch (error) {
      if (!signal.aborted) down(problemOf(error))
    }
  })
}

async function askOnce(view: string, query: string, signal?: AbortSignal): Promise<Page<unknown>> {
  if (view === 'status') return { items: [await ask<StatusView>('/status', signal)], total: 1, next: '' }
  return ask(`/${view}${query && `?${query}`}`, signal)
}

/** A server that does not answer is no problem of this view: the line says it. */
const problemOf = (error: unknown) => (error instanceof Refusal && error.status > 0 ? error.message : '')
