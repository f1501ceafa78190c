import { expect, test } from 'vitest'
import { readPageState } from '../page/address'
import { countPath, nextSort, rangeWords, workQuery } from './query'

test('each tab asks for its states in its order', () => {
  const fields = new URLSearchParams(workQuery(readPageState('#tab=waiting'), ''))
  expect(fields.get('state')).toBe('waiting,held')
  expect(fields.get('sort')).toBe('submitted')
  expect(fields.get('limit')).toBe('50')
  expect(fields.has('after')).toBe(false)
})

test('filters, sort and cursor go along', () => {
  const fields = new URLSearchParams(workQuery(readPageState('#queue=lab&q=a%26b&sort=-gpus'), 'c=1'))
  expect([fields.get('queue'), fields.get('q'), fields.get('sort'), fields.get('after')]).toEqual(['lab', 'a&b', '-gpus', 'c=1'])
})

test('a heading sorts up, down, and lets go', () => {
  expect(nextSort('', 'name')).toBe('name')
  expect(nextSort('name', 'name')).toBe('-name')
  expect(nextSort('-name', 'name')).toBe('')
  expect(nextSort('-name', 'queue')).toBe('queue')
})

test('the range counts from one', () => {
  expect(rangeWords(0, 50, 213)).toBe('1–50 of 213')
  expect(rangeWords(4, 13, 213)).toBe('201–213 of 213')
  expect(rangeWords(0, 0, 0)).toBe('0 of 0')
})

test('a search names users, nodes, labels and parts of names', () => {
  const fields = new URLSearchParams(workQuery(readPageState('#q=user:ada+node:node-3+team%3Dml+fine+tune'), ''))
  expect([fields.get('user'), fields.get('node'), fields.getAll('label'), fields.get('q')]).toEqual(['ada', 'node-3', ['team=ml'], 'fine tune'])
})

test('the counts ask with the same filters, and not at all without any', () => {
  expect(countPath(readPageState('#tab=waiting&sort=-gpus'))).toBe('')
  expect(countPath(readPageState('#queue=lab&q=user:ada'))).toBe('/workloads/counts?queue=lab&user=ada')
})
