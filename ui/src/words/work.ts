// Words about workloads: states in their groups, names as people write them, what may be done, and how long it has been.

import type { Verb } from '../api/client'
import type { Phase, WorkloadState, WorkloadView } from '../api/views'
import { span } from './times'

export type Tab = 'active' | 'running' | 'waiting' | 'ended'

export const TABS: Record<Tab, { title: string; states: WorkloadState[]; sort: string }> = {
  active: {
    title: 'Active',
    states: ['waiting', 'held', 'starting', 'running', 'stopping'],
    sort: '-submitted',
  },
  running: { title: 'Running', states: ['starting', 'running', 'stopping'], sort: '-started' },
  waiting: { title: 'Waiting', states: ['waiting', 'held'], sort: 'submitted' },
  ended: { title: 'Ended', states: ['succeeded', 'failed', 'cancelled'], sort: '-ended' },
}

export const isOver = (state: WorkloadState) => TABS.ended.states.includes(state)
export const isWaiting = (state: WorkloadState) => TABS.waiting.states.includes(state)

export function countIn(tab: Tab, byState: Partial<Record<WorkloadState, number>>): number {
  return TABS[tab].states.reduce((sum, state) => sum + (byState[state] ?? 0), 0)
}

/** People drop the namespace `default`; so does the page. */
export function shortName(name: string): string {
  return name.startsWith('default/') ? name.slice('default/'.length) : name
}

/** What a pod's phase is called where people read it. */
export const PHASES: Record<Phase, string> = {
  assumed: 'starting',
  running: 'running',
  releasing: 'stopping',
  stuck: 'stuck while stopping',
  done: 'succeeded',
}

/** What this person may do to it now: nothing that the server would refuse. */
export function verbsFor(state: WorkloadState, mayDo: readonly string[]): Verb[] {
  return verbsOf(state).filter((verb) => mayDo.includes(verb))
}

function verbsOf(state: WorkloadState): Verb[] {
  if (state === 'waiting') return ['hold', 'cancel']
  if (state === 'held') return ['release', 'cancel']
  if (isOver(state)) return ['requeue']
  if (state === 'stopping') return []
  return ['requeue', 'cancel']
}

/** What cancelling, or requeuing, does to whose work; empty: it stops nothing, so nobody need be asked. */
export function stopWords(verb: Verb, work: WorkloadView): string {
  const holds = work.state !== 'held' && work.state !== 'waiting' && !isOver(work.state)
  if (verb === 'cancel' && !holds) return `Cancel this workload${ofUser(work)}? It leaves its queue.`
  if ((verb !== 'cancel' && verb !== 'requeue') || !holds) return ''
  const then = verb === 'requeue' ? 'and starts again later' : 'for good'
  const title = verb === 'requeue' ? 'Requeue' : 'Cancel'
  const where = work.nodes.length ? ` on ${nodeWords(work.nodes)}` : ''
  return `${title} this workload${ofUser(work)}? It stops${where} ${then}, and loses work that it has not saved.`
}

const ofUser = ({ user }: WorkloadView) => (user ? ` of ${user}` : '')

/** "gpu-3:500m" -> "gpu-3 (0.5 GPU)". */
export function deviceWords(device: string): string {
  const [, id, milli] = /^(.*):(\d+)m$/.exec(device) ?? []
  return id && milli ? `${id} (${Number(milli) / 1000} GPU)` : device
}

/** A command as it is typed in a shell. */
export function commandWords(command: readonly string[]): string {
  return command.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`)).join(' ')
}

/** How long the last start has run, or ran. */
export function ran(work: WorkloadView, now_s: number): string {
  return work.started_s ? span((work.ended_s || now_s) - work.started_s) : '–'
}

/** Where it runs, or why it does not: the line under its name. */
export function nodesOrReason(work: WorkloadView): string {
  return work.reason || nodeWords(work.nodes)
}

/** When it is planned or expected to start, in a few words; empty when nobody knows, or when it is held. */
export function plannedStart(work: WorkloadView, now_s: number): string {
  if (work.state !== 'waiting') return ''
  if (!work.planned_s) return expectedStart(work, now_s)
  return work.planned_s > now_s ? `planned to start in ${span(work.planned_s - now_s)}` : 'planned to start now'
}

/** The middle and, if it is known, the range in which four of five such starts fall. */
function expectedStart({ expected_s, expected_low_s, expected_high_s }: WorkloadView, now_s: number): string {
  if (!expected_s) return ''
  const [low, high] = [span(Math.max(0, expected_low_s - now_s)), span(expected_high_s - now_s)]
  const range = expected_high_s > now_s && low !== high ? ` (${low} to ${high})` : ''
  return expected_s > now_s ? `expected to start in ${span(expected_s - now_s)}${range}` : `expected to start now${range}`
}

/** A clause of the API as a sentence of its own. */
export function asSentence(clause: string): string {
  return clause && `${clause[0]?.toUpperCase()}${clause.slice(1)}.`
}

export function nodeWords(nodes: readonly string[], most = 3): string {
  if (nodes.length <= most) return nodes.join(', ')
  return `${nodes.slice(0, most).join(', ')} and ${nodes.length - most} more`
}
