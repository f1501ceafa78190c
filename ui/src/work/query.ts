// The query of the work table, and its pages.

import type { PageState } from '../page/address'
import { TABS } from '../words/work'

export const PAGE_SIZE = 50

export type Sort = 'name' | 'queue' | 'state' | 'gpus' | 'submitted'

export function workQuery(pageState: PageState, after: string): string {
  const fields = filters(pageState)
  fields.set('state', TABS[pageState.tab].states.join(','))
  fields.set('sort', pageState.sort || TABS[pageState.tab].sort)
  fields.set('limit', String(PAGE_SIZE))
  if (after) fields.set('after', after)
  return fields.toString()
}

/** What the numbers on the tabs count; empty: the whole cluster, whose counts come with its status. */
export function countPath(pageState: PageState): string {
  const fields = filters(pageState).toString()
  return fields && `/workloads/counts?${fields}`
}

/** `user:ada node:node-3 team=ml train`: of a user, on a node, with a label, with this in its name. */
function filters({ queue, q }: PageState): URLSearchParams {
  const fields = new URLSearchParams()
  if (queue) fields.set('queue', queue)
  const inName: string[] = []
  for (const word of q.split(/\s+/).filter(Boolean)) {
    const [, field, value] = /^(user|node):(.+)$/.exec(word) ?? []
    if (field && value) fields.set(field, value)
    else if (/^[^=]+=[^=]*$/.test(word)) fields.append('label', word)
    else inName.push(word)
  }
  if (inName.length) fields.set('q', inName.join(' '))
  return fields
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
