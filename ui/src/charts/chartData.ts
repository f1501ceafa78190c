// Time series of the API, as a chart takes them: one column of times, and one of values a line.

import type { SeriesView } from '../api/views'
import { memory } from '../words/amounts'

/** One line of a chart: a measure of one subject. */
export interface Line {
  label: string
  measure: string // its end says the unit
  values: readonly (number | null)[] // null: nobody knows
}

export interface ChartData {
  times: number[] // the begin of each step, in seconds
  lines: Line[]
}

export const NOTHING: ChartData = { times: [], lines: [] }

/** Put answers for the same range together. Answers can differ by a step when one was asked for a moment later. */
export function chartData(views: readonly SeriesView[], labels: readonly string[]): ChartData {
  const first = views[0]
  if (!first) return NOTHING
  const begins_s = Math.max(...views.map((view) => view.begins_s))
  const steps = Math.min(...views.map((view) => lengthOf(view) - stepsBetween(view, begins_s)))
  const lines = views.flatMap((view) =>
    view.series.map((each) => {
      const skipped = stepsBetween(view, begins_s)
      return { measure: view.measure, values: each.values.slice(skipped, skipped + steps), name: each.name }
    }),
  )
  return {
    times: Array.from({ length: Math.max(0, steps) }, (_, step) => begins_s + step * first.step_s),
    lines: lines.map(({ measure, values, name }, index) => ({ label: labels[index] ?? name, measure, values })),
  }
}

const lengthOf = (view: SeriesView) => view.series[0]?.values.length ?? 0
const stepsBetween = (view: SeriesView, begins_s: number) => Math.round((begins_s - view.begins_s) / view.step_s)

/** Whether anything is known at all. */
export const isKnown = (data: ChartData) => data.lines.some((line) => line.values.some((value) => value !== null))

/** The newest value that is known. */
export function newest(line: Line): number | null {
  for (let index = line.values.length - 1; index >= 0; index--) {
    const value = line.values[index]
    if (value !== null && value !== undefined) return value
  }
  return null
}

/** Values with nobody beside them, which no line would show. */
export function isolated(values: readonly (number | null)[]): number[] {
  const isKnownAt = (index: number) => typeof values[index] === 'number'
  return values.flatMap((_, index) => (isKnownAt(index) && !isKnownAt(index - 1) && !isKnownAt(index + 1) ? [index] : []))
}

const SHORT = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 })

/** A value of a measure as people write it: the end of the measure's name is its unit. */
export function inMeasure(value: number, measure: string): string {
  if (measure.endsWith('_milli')) return SHORT.format(value / 1000)
  if (measure.endsWith('_permille')) return `${SHORT.format(value / 10)} %`
  if (measure.endsWith('_percent')) return `${SHORT.format(value)} %`
  if (measure.endsWith('_mib')) return memory(Math.round(value))
  if (measure.endsWith('_us')) return `${SHORT.format(value / 1000)} ms`
  if (measure.endsWith('_w')) return `${SHORT.format(value)} W`
  if (measure.endsWith('_c')) return `${SHORT.format(value)} °C`
  return SHORT.format(value)
}
