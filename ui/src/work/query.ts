// The query of the work table, and its pages.

import type { PageState } from '../page/address'
import { TABS } from '../words/work'

export const PAGE_SIZE = 50

export type Sort = 'name' | 'queue' | 'state' | 'gpus' | 'submitted'

export function workQuery(pageState: PageState, after: string): string {
  const fields = new URLSearchParams({ state: TABS[pageState.tab].states.join(','), sort: pageState.sort || TABS[pageState.tab].sort })
  if (pageState.queue) fields.set('queue', pageState.queue)
  if (pageState.q) fields.set('q', pageState.q)
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
