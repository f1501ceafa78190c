import { expect, test } from 'vitest'
import { readPlace, writePlace } from './address'

test('a plain page has a plain address', () => {
  expect(writePlace(readPlace(''))).toBe('')
})

test('what is shown survives the way through the address', () => {
  const place = { tab: 'waiting', queue: 'lab/a b', q: 'x&y=1#', sort: '-gpus', work: 'default/train' } as const
  expect(readPlace(`#${writePlace(place)}`)).toEqual(place)
})

test('an address with nonsense shows the start', () => {
  expect(readPlace('#tab=__proto__&foo=1')).toEqual(readPlace(''))
  expect(readPlace('#%%%').tab).toBe('active')
})
