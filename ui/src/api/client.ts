// Call the API. In: a path under /api/v1. Out: its JSON, or an ApiError with one sentence. It never retries or caches.

import { BASE } from './base'
import { authorization, endLogin } from './session'
import type { Outcome, Problem } from './views'

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

export function workloadPath(workload: string): string {
  return `/workloads/${workload.split('/').map(encodeURIComponent).join('/')}`
}

async function send<T>(method: string, path: string, signal?: AbortSignal): Promise<T> {
  const login = authorization()
  let response: Response
  try {
    response = await fetch(BASE + path, {
      method,
      signal: signal ?? null,
      credentials: 'omit',
      headers: { accept: 'application/json', ...login },
    })
  } catch (error) {
    if (signal?.aborted) throw error
    throw new ApiError(0, 'Kaiwo does not answer. The page keeps trying.')
  }
  if (response.ok) return (await response.json()) as T
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
