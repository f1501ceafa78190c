// The links to the pages. Each has an address of its own, so that it can be opened beside this one or kept.

import { PAGES, type PageName, type PageState, writePageState } from './address'

export function Navigation({ pageState }: { pageState: PageState }) {
  return (
    <nav className="pages" aria-label="Pages">
      {(Object.keys(PAGES) as PageName[]).map((page) => (
        <a key={page} href={`#${writePageState({ ...pageState, page })}`} aria-current={pageState.page === page ? 'page' : undefined}>
          {PAGES[page]}
        </a>
      ))}
    </nav>
  )
}
