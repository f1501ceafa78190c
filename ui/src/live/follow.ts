// Follow one view of the API over a stream of server-sent events, for as long as somebody looks.
//
// In: a view and its query. Out: calls of `tell` with the newest table and the state of the line.
// Never: gives up. The browser reconnects by itself and resumes with Last-Event-ID; where it will not (the server answered
// with an error), we open a new stream, which begins with a `reset`. While the tab is hidden the stream is closed, because
// a browser opens only six connections to one host.

import { BASE, Refusal, ask } from '../api/client'
import { type Delta, type Reset, type Table, applyDelta, fromReset } from './table'

export type Line = 'connecting' | 'live' | 'reconnecting'

export interface Live<T> {
  table: Table<T> | null
  line: Line
  problem: string // why the server refuses this view; empty while it does not
}

const FIRST_RETRY_MS = 500
const LAST_RETRY_MS = 4000
const HIDDEN_FOR_MS = 500 // a glance at another tab is no reason to close

/** Starts to follow; the function it returns stops. */
export function follow<T>(view: string, query: string, tell: (live: Live<T>) => void): () => void {
  let source: EventSource | null = null
  let live: Live<T> = { table: null, line: 'connecting', problem: '' }
  let retry = FIRST_RETRY_MS
  let timer: number | undefined

  const say = (change: Partial<Live<T>>) => {
    live = { ...live, ...change }
    tell(live)
  }

  const open = () => {
    close()
    source = new EventSource(`${BASE}/stream?view=${view}${query && `&${query}`}`)
    source.addEventListener('reset', (event) => {
      retry = FIRST_RETRY_MS
      say({ table: fromReset(JSON.parse(event.data) as Reset<T>), line: 'live', problem: '' })
    })
    source.addEventListener('delta', (event) => {
      if (live.table) say({ table: applyDelta(live.table, JSON.parse(event.data) as Delta<T>), line: 'live' })
    })
    source.addEventListener('open', () => {
      if (live.table) say({ line: 'live', problem: '' }) // resumed: nothing need have changed
    })
    source.addEventListener('error', () => {
      say({ line: live.table ? 'reconnecting' : 'connecting' })
      if (source?.readyState === EventSource.CLOSED) void explainThenReopen()
    })
  }

  const explainThenReopen = async () => {
    close()
    timer = window.setTimeout(open, retry)
    retry = Math.min(retry * 2, LAST_RETRY_MS)
    const problem = await whyRefused(view, query)
    if (!source) say({ problem })
  }

  const close = () => {
    window.clearTimeout(timer)
    source?.close()
    source = null
  }

  const onVisibility = () => {
    window.clearTimeout(timer)
    if (document.hidden) timer = window.setTimeout(close, HIDDEN_FOR_MS)
    else if (!source) open()
  }

  document.addEventListener('visibilitychange', onVisibility)
  onVisibility()
  return () => {
    document.removeEventListener('visibilitychange', onVisibility)
    close()
  }
}

/** An EventSource hides the server's answer, so the same view is asked for once in the plain way. */
async function whyRefused(view: string, query: string): Promise<string> {
  try {
    await ask(`/${view}${query && `?${query}`}`)
    return ''
  } catch (error) {
    return error instanceof Refusal && error.status > 0 ? error.message : ''
  }
}
