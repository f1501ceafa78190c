// The fields of a workload that the page can change: their values now, and a change in words and for the API.

import type { Fields } from '../api/client'
import type { WorkloadDetail } from '../api/views'
import { span } from './times'

export type Field = 'priority' | 'queue' | 'time' | 'gpus' | 'pods'

export const TITLES: Record<Field, string> = {
  priority: 'Priority',
  queue: 'Queue',
  time: 'Time limit',
  gpus: 'GPUs per pod',
  pods: 'Pods',
}

export type Draft = Partial<Record<Field, string>>

/** What the workload says now, for those fields that this person may change. What is unknown here starts empty. */
export function currentDraft(detail: WorkloadDetail): Draft {
  const all: Record<Field, string> = {
    priority: String(detail.asked_priority ?? detail.summary.priority),
    queue: detail.summary.queue,
    time: detail.time_limit_s ? span(detail.time_limit_s) : '',
    gpus: '',
    pods: '',
  }
  const fields = (Object.keys(all) as Field[]).filter((field) => detail.changeable.includes(field))
  return Object.fromEntries(fields.map((field) => [field, all[field]]))
}

/** Only what differs. An empty time clears the limit; an empty size leaves it as it is. */
export function fieldsOf(before: Draft, draft: Draft): Fields {
  const found: Fields = {}
  for (const field of Object.keys(before) as Field[]) {
    const text = (draft[field] ?? '').trim()
    if (text === before[field]) continue
    if (field === 'time') found[field] = text ? text.replaceAll(/\s+/g, '').replaceAll('min', 'm') : null
    else if (field === 'queue') found[field] = text
    else if (text) found[field] = /^-?\d+$/.test(text) ? Number(text) : text
  }
  return found
}

/** `Priority 0 → 5, Time limit none → 2h` */
export function changeWords(before: Draft, fields: Fields): string {
  return Object.entries(fields)
    .map(([field, value]) => `${TITLES[field as Field]} ${before[field as Field] || (field === 'time' ? 'none' : '')} → ${value ?? 'none'}`)
    .map((words) => words.replace('  ', ' '))
    .join(', ')
}

/** Why a time cannot be sent; empty: it can. */
export function timeProblem(fields: Fields): string {
  return /^\d+$/.test(String(fields.time ?? '')) ? `${fields.time} has no unit; write ${fields.time}m for minutes or ${fields.time}h for hours.` : ''
}
