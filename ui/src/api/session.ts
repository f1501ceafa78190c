// The login of this browser.
//
// In: the code of a login address. Out: a token, which every request sends, and whether it is still valid.
// The token is in the storage of this origin: no page of another port or host can read it, and no browser sends it by
// itself, as it would send a cookie.

import { BASE } from './base'
import type { SessionView } from './views'

export type Login = 'in' | 'out' | 'ended' // ended: it was valid, and the server does not know it any more

const KEY = 'kaiwo-token'
const listeners = new Set<() => void>()
let login: Login = readToken() ? 'in' : 'out'
let refusal = '' // why a login address did not work

export const currentLogin = (): Login => login
export const loginRefusal = (): string => refusal

/** For React: calls `listener` at every change. */
export function onLoginChange(listener: () => void): () => void {
  listeners.add(listener)
  return () => {
    listeners.delete(listener)
  }
}

export function authorization(): Record<string, string> {
  const token = readToken()
  return token ? { authorization: `Bearer ${token}` } : {}
}

/** The server does not know the token that was sent with these headers; a newer login stays. */
export function endLogin(sent: Record<string, string>): void {
  if (sent.authorization !== authorization().authorization) return
  const had = readToken() !== null
  localStorage.removeItem(KEY)
  setLogin(had || login === 'ended' ? 'ended' : 'out')
}

/** Opened by a login address, the page exchanges its code for a token, and forgets the code. */
export async function logInByAddress(): Promise<void> {
  if (location.pathname !== '/login') return
  const code = new URLSearchParams(location.search).get('code') ?? ''
  history.replaceState(null, '', `/${location.hash}`)
  try {
    const headers = { 'content-type': 'application/json' }
    const response = await fetch(`${BASE}/sessions`, { method: 'POST', headers, body: JSON.stringify({ code }) })
    if (response.ok) {
      localStorage.setItem(KEY, ((await response.json()) as SessionView).token)
      setLogin('in')
    } else refusal = ((await response.json()) as { message: string }).message
  } catch {
    refusal = 'Kaiwo does not answer. Open the login address again when it runs.'
  }
}

export async function logOut(): Promise<void> {
  const headers = authorization()
  localStorage.removeItem(KEY)
  setLogin('out')
  await fetch(`${BASE}/logins`, { method: 'DELETE', headers }).catch(() => undefined)
}

function readToken(): string | null {
  return localStorage.getItem(KEY)
}

function setLogin(next: Login): void {
  if (next === login) return
  login = next
  for (const listener of listeners) listener()
}

// Another window of this browser logged in or out.
window.addEventListener('storage', (event) => {
  if (event.key === KEY) setLogin(event.newValue ? 'in' : 'out')
})
