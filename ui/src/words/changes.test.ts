import { describe, expect, test } from 'vitest'
import { changeWords, fieldsOf, timeProblem } from './changes'

describe('a change of a workload', () => {
  const before = { priority: '0', queue: 'lab', time: '', gpus: '', pods: '' }

  test('has only what differs', () => {
    expect(fieldsOf(before, before)).toEqual({})
    expect(fieldsOf(before, { ...before, priority: ' 5 ', gpus: '4' })).toEqual({ priority: 5, gpus: 4 })
  })

  test('clears a time that is emptied, and leaves a size that is empty', () => {
    expect(fieldsOf({ ...before, time: '2 h' }, { ...before, time: '' })).toEqual({ time: null })
    expect(fieldsOf(before, { ...before, time: '1 h 30 min' })).toEqual({ time: '1h30m' })
  })

  test('sends what the server has to refuse as it was written', () => {
    expect(fieldsOf(before, { ...before, gpus: 'many' })).toEqual({ gpus: 'many' })
  })

  test('is told before it is sent', () => {
    expect(changeWords(before, { priority: 5, time: '2h' })).toBe('Priority 0 → 5, Time limit none → 2h')
    expect(changeWords(before, { time: null })).toBe('Time limit none → none')
    expect(changeWords(before, { gpus: 4 })).toBe('GPUs per pod → 4')
  })

  test('needs a unit for a time', () => {
    expect(timeProblem({ time: '2' })).toBe('2 has no unit; write 2m for minutes or 2h for hours.')
    expect(timeProblem({ time: '2h' })).toBe('')
    expect(timeProblem({ time: null })).toBe('')
  })
})
