// Call the API. In: a path under /api/v1. Out: its JSON, or an ApiError with one sentence. It never retries or caches.

import { BASE } from './base'
import { authorization, endLogin } from './session'
import type { BulkOutcome, Outcome, Problem, SilenceView, WhatIfView } from './views'

/** The API refused, or could not be reached (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message)
  }
}

const LOGIN = 'This browser is not logged in. Run `kaiwo login` in a terminal and open the address that it prints.'

export type Verb = 'hold' | 'release' | 'requeue' | 'cancel'

export function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return send<T>('GET', path, signal)
}

/** Do something to a workload. Its name is `namespace/name`. */
export function act(verb: Verb, workload: string): Promise<Outcome> {
  const path = workloadPath(workload)
  return verb === 'cancel' ? send('DELETE', path) : send('POST', `${path}/${verb}`)
}

export type NodeVerb = 'cordon' | 'uncordon' | 'drain'

export function nodeAct(verb: NodeVerb, node: string): Promise<Outcome> {
  return send('POST', `/nodes/${encodeURIComponent(node)}/${verb}`)
}

/** The fields of a workload as the short form and `kaiwo set` name them; null clears one. */
export type Fields = Record<string, string | number | boolean | string[] | null>

/** Change a workload in place: what was changed, in words. */
export async function change(workload: string, fields: Fields): Promise<string[]> {
  const { results, warnings } = await send<BulkOutcome>('POST', '/workloads/set', undefined, { names: [workload], fields })
  const problem = results.find((each) => each.problem)?.problem
  if (problem) throw new ApiError(0, problem.message)
  return [...results.map((each) => each.done), ...(warnings ?? [])]
}

export function submit(fields: Fields): Promise<Outcome> {
  return send('POST', '/workloads', undefined, fields)
}

/** What changes in a copy of the cluster, as `kaiwo what-if` asks. */
export interface WhatIfQuestion {
  quotas?: Record<string, number>
  limits?: Record<string, number>
  add_nodes?: { count: number; model?: string }[]
  remove_nodes?: string[]
}

export function askWhatIf(question: WhatIfQuestion): Promise<WhatIfView> {
  return send('POST', '/what-if', undefined, question)
}

/** Tell nobody of these alerts for a while. */
export function silence(rule: string, subject: string, for_s: number): Promise<SilenceView> {
  return send('POST', '/alerts/silences', undefined, { rule, subject, for_s })
}

export function endSilence(id: number): Promise<SilenceView> {
  return send('DELETE', `/alerts/silences/${id}`)
}

export function workloadPath(workload: string): string {
  return `/workloads/${workload.split('/').map(encodeURIComponent).join('/')}`
}

/** Text as it is, such as a log. */
export async function getText(path: string, signal?: AbortSignal): Promise<string> {
  return (await answer('GET', path, signal)).text()
}

async function send<T>(method: string, path: string, signal?: AbortSignal, body?: unknown): Promise<T> {
  return (await (await answer(method, path, signal, body)).json()) as T
}

async function answer(method: string, path: string, signal?: AbortSignal, body?: unknown): Promise<Response> {
  const login = authorization()
  let response: Response
  try {
    response = await fetch(BASE + path, {
      method,
      signal: signal ?? null,
      credentials: 'omit',
      headers: { accept: 'application/json', ...(body ? { 'content-type': 'application/json' } : {}), ...login },
      body: body ? JSON.stringify(body) : null,
    })
  } catch (error) {
    if (signal?.aborted) throw error
    throw new ApiError(0, 'Kaiwo does not answer. The page keeps trying.')
  }
  if (response.ok) return response
  if (response.status === 401) endLogin(login)
  throw new ApiError(response.status, await problemSentence(response))
}

async function problemSentence(response: Response): Promise<string> {
  if (response.status === 401) return LOGIN
  try {
    const problem = (await response.json()) as Partial<Problem>
    if (problem.message) return problem.message
  } catch {
    // Not a Problem: some other program answers on this address.
  }
  return `Kaiwo answered with HTTP status ${response.status} and gave no reason. See api.log in KAIWO_HOME.`
}
