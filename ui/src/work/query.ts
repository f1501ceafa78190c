// The question the work table asks the API, and the way through its pages.

import type { Place } from '../page/address'
import { TABS } from '../words/work'

export const PAGE_SIZE = 50

export type Sort = 'name' | 'queue' | 'state' | 'gpus' | 'submitted'

export function workQuery(place: Place, after: string): string {
  const fields = new URLSearchParams({ state: TABS[place.tab].states.join(','), sort: place.sort || TABS[place.tab].sort })
  if (place.queue) fields.set('queue', place.queue)
  if (place.q) fields.set('q', place.q)
  fields.set('limit', String(PAGE_SIZE))
  if (after) fields.set('after', after)
  return fields.toString()
}

/** A column's heading was pressed: first up, then down, then the tab's own order again. */
export function nextSort(shown: string, column: Sort): string {
  if (shown === column) return `-${column}`
  return shown === `-${column}` ? '' : column
}

/** "51–100 of 213". */
export function rangeWords(page: number, rows: number, total: number): string {
  if (!rows) return `0 of ${total}`
  const first = page * PAGE_SIZE + 1
  return `${first}–${first + rows - 1} of ${total}`
}
