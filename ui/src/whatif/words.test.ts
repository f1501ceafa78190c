import { describe, expect, test } from 'vitest'
import { both, readQuestion, bothSpans, utilisationWords } from './words'

const asked = (fields: Record<string, string>) => readQuestion((name) => fields[name] ?? '')

describe('a what-if question', () => {
  test('has only what was filled in', () => {
    expect(asked({ queue: 'lab', quota: '12' })).toEqual({ quotas: { lab: 12 } })
    expect(asked({ queue: 'lab', limit: '0', nodes: '4' })).toEqual({ limits: { lab: 0 }, add_nodes: [{ count: 4 }] })
    expect(asked({ nodes: '2', model: 'H200', without: 'a, b  c' })).toEqual({
      add_nodes: [{ count: 2, model: 'H200' }],
      remove_nodes: ['a', 'b', 'c'],
    })
  })

  test.each([
    [{}, 'Change something first: a quota, a limit, or the nodes.'],
    [{ queue: 'lab' }, 'Change something first: a quota, a limit, or the nodes.'],
    [{ quota: '4' }, 'Choose the queue whose quota changes.'],
    [{ queue: 'lab', limit: '1.5' }, 'A limit is a whole number of GPUs, not 1.5.'],
    [{ nodes: '0' }, 'More nodes is a whole number of nodes, not 0.'],
  ])('%j is refused with a sentence', (fields, sentence) => expect(asked(fields)).toBe(sentence))
})

describe('an answer', () => {
  test('shows one value where nothing changes', () => {
    expect(both([3, 3])).toBe('3')
    expect(both([3, 5])).toBe('3 → 5')
    expect(bothSpans([3540, 60])).toBe('59 min → 1 min')
  })

  test('says how much is in use and for how long', () => {
    const view = { as_of_s: 0, until_s: [7200, 3600], is_whole: [true, true], gpus: [64, 80], utilisation: [0.5, 0.625], queues: [], added: {}, unknown: 0 }
    expect(utilisationWords(view)).toBe('GPUs in use until all work has ended: 50 % of 64 GPUs → 63 % of 80 GPUs. That takes 2 h → 1 h.')
  })
})
