import { expect, test } from 'vitest'
import { readPageState, writePageState } from './address'

test('a plain page has a plain address', () => {
  expect(writePageState(readPageState(''))).toBe('')
})

test('what is shown survives the way through the address', () => {
  const pageState = {
    page: 'usage',
    tab: 'waiting',
    queue: 'lab/a b',
    q: 'x&y=1#',
    sort: '-gpus',
    work: 'default/train',
    node: 'node-1',
    cycle: '42',
  } as const
  expect(readPageState(`#${writePageState(pageState)}`)).toEqual(pageState)
})

test('an address with nonsense shows the start', () => {
  expect(readPageState('#tab=__proto__&foo=1')).toEqual(readPageState(''))
  expect(readPageState('#%%%').tab).toBe('active')
  expect(readPageState('#page=constructor').page).toBe('overview')
  expect(readPageState('#cycle=../x').cycle).toBe('')
})
