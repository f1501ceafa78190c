import { expect, test, vi } from 'vitest'

vi.mock('../api/session', () => ({ authorization: () => ({}), endLogin: () => undefined }))
const { eventParser } = await import('./eventStream')

const STREAM = 'retry: 1000\n\nid: 1\nevent: reset\ndata: {"a":1}\n\n: still here\n\nid: 2\r\nevent: delta\r\ndata: x\ndata: y\n\n'

test('events are read whatever the size of the pieces', () => {
  for (const size of [1, 2, 3, 7, 1000]) {
    const seen: unknown[] = []
    const parse = eventParser((event) => seen.push(event))
    for (let at = 0; at < STREAM.length; at += size) parse(STREAM.slice(at, at + size))
    expect(seen).toEqual([
      { kind: 'reset', id: '1', data: '{"a":1}' },
      { kind: 'delta', id: '2', data: 'x\ny' },
    ])
  }
})

test('half an event is none', () => {
  const seen: unknown[] = []
  eventParser((event) => seen.push(event))('event: reset\ndata: {}\n')
  expect(seen).toEqual([])
})
