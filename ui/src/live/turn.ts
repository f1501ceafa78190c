// Which window of this browser streams.
//
// A browser opens six connections to one host for all its windows together, and a page that streams takes four. So one
// window streams, the other visible ones ask every other second, and hidden ones rest. When the one that streams is
// closed or hidden, the next takes its turn. Where the browser has no locks, every window streams.

export type Way = 'stream' | 'ask' | 'rest'

const LOCK = 'kaiwo-streams'
const HIDDEN_FOR_MS = 500 // a glance at another tab is no reason to stop

const listeners = new Set<(way: Way) => void>()
let way: Way = 'rest'
let turn = 0 // counts the times we asked for the lock; an answer to an older wish is handed back
let giveBack = () => {}
let timer: number | undefined

/** Calls `tell` with the way to go now, if it is known, and at every change. The function it returns stops that. */
export function followTurn(tell: (way: Way) => void): () => void {
  if (!listeners.size) {
    document.addEventListener('visibilitychange', look)
    look()
  }
  listeners.add(tell)
  if (way !== 'rest') tell(way)
  return () => {
    listeners.delete(tell)
  }
}

function look(): void {
  window.clearTimeout(timer)
  if (document.hidden) timer = window.setTimeout(rest, HIDDEN_FOR_MS)
  else if (way === 'rest') void takePart()
}

function rest(): void {
  turn++
  giveBack()
  go('rest')
}

async function takePart(): Promise<void> {
  const mine = ++turn
  if (!navigator.locks) return go('stream')
  const hold = () =>
    new Promise<void>((resolve) => {
      if (mine !== turn) return resolve()
      giveBack = resolve
      go('stream')
    })
  await navigator.locks.request(LOCK, { ifAvailable: true }, (lock) => (lock ? hold() : undefined))
  if (mine !== turn) return
  go('ask')
  await navigator.locks.request(LOCK, hold)
}

function go(next: Way): void {
  if (next === way) return
  way = next
  for (const tell of listeners) tell(way)
}
