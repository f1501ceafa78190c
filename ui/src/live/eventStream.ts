// Read server-sent events with fetch, because an EventSource cannot send the token.
//
// In: an address. Out: one call for each event, in order. It ends with the connection, and never reconnects by itself.

import { authorization, endLogin } from '../api/session'

export interface ServerEvent {
  kind: string
  id: string
  data: string
}

/** The server answered, but not with a stream. */
export class StreamRefused extends Error {
  constructor(readonly status: number) {
    super(`HTTP status ${status}`)
  }
}

/** Resolves when the server closes the stream; rejects when the connection breaks or the server refuses. */
export async function readEvents(
  url: string,
  lastId: string,
  signal: AbortSignal,
  onOpen: () => void,
  onEvent: (event: ServerEvent) => void,
): Promise<void> {
  const login = authorization()
  const headers = { accept: 'text/event-stream', ...login, ...(lastId && { 'last-event-id': lastId }) }
  const response = await fetch(url, { headers, signal, cache: 'no-store' })
  if (!response.ok || !response.body) {
    if (response.status === 401) endLogin(login)
    throw new StreamRefused(response.status)
  }
  onOpen()
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  const parse = eventParser(onEvent)
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    parse(value)
  }
}

/** A function that takes the text of a stream in pieces of any size. */
export function eventParser(onEvent: (event: ServerEvent) => void): (text: string) => void {
  let rest = ''
  let event: ServerEvent = { kind: 'message', id: '', data: '' }
  const readLine = (line: string) => {
    if (line === '') {
      if (event.data) onEvent(event)
      event = { kind: 'message', id: '', data: '' }
      return
    }
    const colon = line.indexOf(':')
    const name = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '')
    if (name === 'event') event.kind = value
    else if (name === 'id') event.id = value
    else if (name === 'data') event.data += event.data ? `\n${value}` : value
  }
  return (text) => {
    const lines = (rest + text).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) readLine(line.endsWith('\r') ? line.slice(0, -1) : line)
  }
}
