// Light or dark: the system's setting, unless the user chose otherwise on this page. The choice is stored.

import { useSyncExternalStore } from 'react'

export type Theme = 'light' | 'dark'

const KEY = 'kaiwo-theme' // also read by public/theme.js before the first paint
const system = window.matchMedia('(prefers-color-scheme: dark)')
const listeners = new Set<() => void>()

const systemTheme = (): Theme => (system.matches ? 'dark' : 'light')

function shownTheme(): Theme {
  const chosen = document.documentElement.dataset['theme']
  return chosen === 'light' || chosen === 'dark' ? chosen : systemTheme()
}

/** Choosing what the system asks for anyway means to follow the system again. */
function toggle(): void {
  const next: Theme = shownTheme() === 'dark' ? 'light' : 'dark'
  const isSystem = next === systemTheme()
  if (isSystem) delete document.documentElement.dataset['theme']
  else document.documentElement.dataset['theme'] = next
  try {
    if (isSystem) localStorage.removeItem(KEY)
    else localStorage.setItem(KEY, next)
  } catch {
    // Storage can be forbidden; the choice then lasts as long as the page.
  }
  for (const onChange of listeners) onChange()
}

function subscribe(onChange: () => void): () => void {
  listeners.add(onChange)
  system.addEventListener('change', onChange)
  return () => {
    listeners.delete(onChange)
    system.removeEventListener('change', onChange)
  }
}

export function useTheme(): [Theme, () => void] {
  return [useSyncExternalStore(subscribe, shownTheme), toggle]
}
