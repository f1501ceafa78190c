// Follow one view of the API.
//
// In: a view and its query. Out: calls of `onChange` with the newest table and the state of the connection.
// It never gives up while this browser is logged in. A stream that broke is opened again, with Last-Event-ID, and then
// begins with what was missed or with a `reset`. A window that leaves the streams to another one polls the same page.

import { BASE } from '../api/base'
import { ApiError, getJson } from '../api/client'
import type { Page, StatusView } from '../api/views'
import { StreamRefused, readEvents } from './eventStream'
import { repeat } from './repeat'
import { type Delta, type Reset, type Table, applyDelta, fromReset } from './table'
import { followStreamRole } from './streamingWindow'

export type ConnectionState = 'connecting' | 'live' | 'reconnecting'

export interface Live<T> {
  table: Table<T> | null
  connection: ConnectionState
  problem: string // why the server refuses this view; empty while it does not
}

const FIRST_RETRY_MS = 500
const LAST_RETRY_MS = 4000
const POLL_MS = 2000

/** Starts to follow; the function it returns stops. */
export function follow<T>(view: string, query: string, onChange: (live: Live<T>) => void): () => void {
  let live: Live<T> = { table: null, connection: 'connecting', problem: '' }
  const update = (change: Partial<Live<T>>) => {
    live = { ...live, ...change }
    onChange(live)
  }
  const disconnected = (problem: string) => update({ connection: live.table ? 'reconnecting' : 'connecting', problem })
  let stop = () => {}
  const leave = followStreamRole((role) => {
    stop()
    stop = () => {}
    if (role === 'stream') stop = stream(view, query, () => live.table, update, disconnected)
    if (role === 'poll') stop = poll(view, query, update, disconnected)
  })
  return () => {
    leave()
    stop()
  }
}

type Update<T> = (change: Partial<Live<T>>) => void

function stream<T>(
  view: string,
  query: string,
  table: () => Table<T> | null,
  update: Update<T>,
  disconnected: (problem: string) => void,
) {
  const stop = new AbortController()
  const url = `${BASE}/stream?view=${view}${query && `&${query}`}`
  let retry = FIRST_RETRY_MS
  let lastId = ''
  let timer: number | undefined

  const open = async () => {
    let refused = false
    try {
      await readEvents(url, lastId, stop.signal, onOpen, (event) => {
        lastId = event.id || lastId
        retry = FIRST_RETRY_MS
        if (event.kind === 'reset') {
          update({ table: fromReset(JSON.parse(event.data) as Reset<T>), connection: 'live', problem: '' })
        } else if (event.kind === 'delta') {
          const before = table()
          if (before) update({ table: applyDelta(before, JSON.parse(event.data) as Delta<T>), connection: 'live' })
        }
      })
    } catch (error) {
      refused = error instanceof StreamRefused
    }
    if (stop.signal.aborted) return
    disconnected('')
    timer = window.setTimeout(() => void open(), retry)
    retry = Math.min(retry * 2, LAST_RETRY_MS)
    // The list answers with the sentence that says why.
    if (refused) disconnected(await fetchPage(view, query, stop.signal).then(() => '', problemOf))
  }
  const onOpen = () => {
    if (table()) update({ connection: 'live', problem: '' }) // resumed: nothing need have changed
  }

  void open()
  return () => {
    window.clearTimeout(timer)
    stop.abort()
  }
}

function poll<T>(view: string, query: string, update: Update<T>, disconnected: (problem: string) => void) {
  return repeat(POLL_MS, async (signal) => {
    try {
      const page = (await fetchPage(view, query, signal)) as Page<T>
      update({ table: fromReset({ view, key: '', ...page }), connection: 'live', problem: '' })
    } catch (error) {
      if (!signal.aborted) disconnected(problemOf(error))
    }
  })
}

async function fetchPage(view: string, query: string, signal?: AbortSignal): Promise<Page<unknown>> {
  if (view === 'status') return { items: [await getJson<StatusView>('/status', signal)], total: 1, next: '' }
  return getJson(`/${view}${query && `?${query}`}`, signal)
}

/** A server that does not answer is no problem of this view: the connection's state shows it. */
const problemOf = (error: unknown) => (error instanceof ApiError && error.status > 0 ? error.message : '')
