import { expect, test } from 'vitest'
import type { SeriesView } from '../api/views'
import { chartData, inMeasure, isKnown, isolated, newest } from './chartData'

const view = (measure: string, begins_s: number, values: (number | null)[]): SeriesView => ({
  kind: 'cluster',
  measure,
  statistic: 'mean',
  begins_s,
  step_s: 10,
  series: [{ name: 'cluster', values }],
})

test('two answers share one column of times', () => {
  const data = chartData([view('running', 100, [1, 2, 3]), view('waiting', 100, [4, null, 6])], ['Running', 'Waiting'])
  expect(data.times).toEqual([100, 110, 120])
  expect(data.lines).toEqual([
    { label: 'Running', measure: 'running', values: [1, 2, 3] },
    { label: 'Waiting', measure: 'waiting', values: [4, null, 6] },
  ])
})

test('an answer that was asked for a step later is put at its own times', () => {
  const data = chartData([view('running', 100, [1, 2, 3]), view('waiting', 110, [5, 6, 7])], [])
  expect(data.times).toEqual([110, 120])
  expect(data.lines.map((line) => line.values)).toEqual([
    [2, 3],
    [5, 6],
  ])
})

test('without a label, a line has the name of its subject', () => {
  expect(chartData([view('running', 100, [1])], []).lines[0]?.label).toBe('cluster')
  expect(chartData([], []).lines).toEqual([])
})

test('unknown is not zero', () => {
  const silent = chartData([view('running', 100, [null, null])], [])
  expect(isKnown(silent)).toBe(false)
  expect(newest(silent.lines[0]!)).toBeNull()
  expect(newest(chartData([view('running', 100, [3, 0, null])], []).lines[0]!)).toBe(0)
})

test('a value between unknown ones is shown as a point', () => {
  expect(isolated([1, null, 0, null, 2, 3, null, 4])).toEqual([0, 2, 7])
  expect(isolated([null, null])).toEqual([])
})

test('values have the unit of their measure', () => {
  expect(inMeasure(61_500, 'gpu_used_milli')).toBe('61.5')
  expect(inMeasure(455, 'cpu_permille')).toBe('45.5 %')
  expect(inMeasure(93, 'utilisation_percent')).toBe('93 %')
  expect(inMeasure(2048, 'memory_mib')).toBe('2 GiB')
  expect(inMeasure(1500, 'cycle_us')).toBe('1.5 ms')
  expect(inMeasure(553, 'power_w')).toBe('553 W')
  expect(inMeasure(61, 'temperature_c')).toBe('61 °C')
  expect(inMeasure(1200, 'waiting')).toBe('1,200')
})
