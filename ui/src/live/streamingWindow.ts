// Which window of this browser streams.
//
// A browser opens six connections to one host for all its windows together, and a page that streams takes four. So one
// window streams, the other visible ones poll every other second, and hidden ones rest. When the one that streams is
// closed or hidden, the next one takes over. Where the browser has no locks, every window streams.

export type StreamRole = 'stream' | 'poll' | 'rest'

const LOCK = 'kaiwo-streams'
const HIDDEN_FOR_MS = 500 // a short look at another tab does not stop the streams

const listeners = new Set<(role: StreamRole) => void>()
let role: StreamRole = 'rest'
let attempt = 0 // counts our requests for the lock; one that an older request got is released
let releaseLock = () => {}
let timer: number | undefined

/** Calls `listener` with this window's role, if it is known, and at every change. The function it returns stops that. */
export function followStreamRole(listener: (role: StreamRole) => void): () => void {
  if (!listeners.size) {
    document.addEventListener('visibilitychange', onVisibilityChange)
    onVisibilityChange()
  }
  listeners.add(listener)
  if (role !== 'rest') listener(role)
  return () => {
    listeners.delete(listener)
  }
}

function onVisibilityChange(): void {
  window.clearTimeout(timer)
  if (document.hidden) timer = window.setTimeout(rest, HIDDEN_FOR_MS)
  else if (role === 'rest') void requestLock()
}

function rest(): void {
  attempt++
  releaseLock()
  setRole('rest')
}

async function requestLock(): Promise<void> {
  const own = ++attempt
  if (!navigator.locks) return setRole('stream')
  const hold = () =>
    new Promise<void>((resolve) => {
      if (own !== attempt) return resolve()
      releaseLock = resolve
      setRole('stream')
    })
  await navigator.locks.request(LOCK, { ifAvailable: true }, (lock) => (lock ? hold() : undefined))
  if (own !== attempt) return
  setRole('poll')
  await navigator.locks.request(LOCK, hold)
}

function setRole(next: StreamRole): void {
  if (next === role) return
  role = next
  for (const listener of listeners) listener(role)
}
