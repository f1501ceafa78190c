// What the page shows, kept in the part of its address after '#', so that reload, back and a copied link all work.

import { useCallback, useMemo, useSyncExternalStore } from 'react'
import { TABS, type Tab } from '../words/work'

/** The pages, in the order of their links. */
export const PAGES = {
  overview: 'Overview',
  usage: 'Usage',
  network: 'Network',
  decisions: 'Decisions',
  alerts: 'Alerts',
  'what-if': 'What if',
  advice: 'Advice',
  operations: 'Operations',
} as const
export type PageName = keyof typeof PAGES

export interface PageState {
  page: PageName
  tab: Tab
  queue: string
  q: string
  sort: string // empty: the tab's own
  work: string // the selected workload; empty: none
  node: string // the selected node; empty: none
  cycle: string // the selected cycle; empty: none
}

const INITIAL_STATE: PageState = { page: 'overview', tab: 'active', queue: '', q: '', sort: '', work: '', node: '', cycle: '' }

export function readPageState(hash: string): PageState {
  const fields = new URLSearchParams(hash.replace(/^#/, ''))
  const tab = fields.get('tab') ?? ''
  const page = fields.get('page') ?? ''
  return {
    page: Object.hasOwn(PAGES, page) ? (page as PageName) : INITIAL_STATE.page,
    tab: Object.hasOwn(TABS, tab) ? (tab as Tab) : INITIAL_STATE.tab,
    queue: fields.get('queue') ?? '',
    q: fields.get('q') ?? '',
    sort: fields.get('sort') ?? '',
    work: fields.get('work') ?? '',
    node: fields.get('node') ?? '',
    cycle: /^[1-9]\d{0,14}$/.test(fields.get('cycle') ?? '') ? (fields.get('cycle') ?? '') : '',
  }
}

/** Only what differs from the start, so that a plain page has a plain address. */
export function writePageState(pageState: PageState): string {
  const fields = new URLSearchParams()
  for (const [name, value] of Object.entries(pageState)) {
    if (value !== INITIAL_STATE[name as keyof PageState]) fields.set(name, value)
  }
  return fields.toString().replaceAll('%2F', '/')
}

function subscribe(onChange: () => void): () => void {
  window.addEventListener('hashchange', onChange)
  return () => window.removeEventListener('hashchange', onChange)
}

export function usePageState(): [PageState, (change: Partial<PageState>) => void] {
  const hash = useSyncExternalStore(subscribe, () => window.location.hash)
  const pageState = useMemo(() => readPageState(hash), [hash])
  const go = useCallback((change: Partial<PageState>) => {
    const next = writePageState({ ...readPageState(window.location.hash), ...change })
    if (['work', 'node', 'page', 'cycle'].some((name) => name in change)) window.location.hash = next // Back undoes this step
    else {
      window.history.replaceState(null, '', next ? `#${next}` : window.location.pathname)
      window.dispatchEvent(new HashChangeEvent('hashchange'))
    }
  }, [])
  return [pageState, go]
}
