// What the page shows, kept in the part of its address after '#', so that reload, back and a copied link all work.

import { useCallback, useMemo, useSyncExternalStore } from 'react'
import { TABS, type Tab } from '../words/work'

export interface Place {
  tab: Tab
  queue: string
  q: string
  sort: string // empty: the tab's own
  work: string // the selected workload; empty: none
}

const NOWHERE: Place = { tab: 'active', queue: '', q: '', sort: '', work: '' }

export function readPlace(hash: string): Place {
  const fields = new URLSearchParams(hash.replace(/^#/, ''))
  const tab = fields.get('tab') ?? ''
  return {
    tab: Object.hasOwn(TABS, tab) ? (tab as Tab) : NOWHERE.tab,
    queue: fields.get('queue') ?? '',
    q: fields.get('q') ?? '',
    sort: fields.get('sort') ?? '',
    work: fields.get('work') ?? '',
  }
}

/** Only what differs from the start, so that a plain page has a plain address. */
export function writePlace(place: Place): string {
  const fields = new URLSearchParams()
  for (const [name, value] of Object.entries(place)) {
    if (value !== NOWHERE[name as keyof Place]) fields.set(name, value)
  }
  return fields.toString().replaceAll('%2F', '/')
}

function subscribe(tell: () => void): () => void {
  window.addEventListener('hashchange', tell)
  return () => window.removeEventListener('hashchange', tell)
}

export function usePlace(): [Place, (change: Partial<Place>) => void] {
  const hash = useSyncExternalStore(subscribe, () => window.location.hash)
  const place = useMemo(() => readPlace(hash), [hash])
  const go = useCallback((change: Partial<Place>) => {
    const next = writePlace({ ...readPlace(window.location.hash), ...change })
    if ('work' in change) window.location.hash = next // a step that Back takes back
    else {
      window.history.replaceState(null, '', next ? `#${next}` : window.location.pathname)
      window.dispatchEvent(new HashChangeEvent('hashchange'))
    }
  }, [])
  return [place, go]
}
