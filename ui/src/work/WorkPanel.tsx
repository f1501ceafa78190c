// The work: tabs by state, a search, a queue filter, and one page of the list, live.

import { useState } from 'react'
import type { QueueView, StatusView, WorkloadView } from '../api/views'
import { useLive } from '../live/hooks'
import type { Place } from '../page/address'
import { CommandLine, Panel, Skeleton } from '../page/Panel'
import { count } from '../words/amounts'
import { TABS, type Tab, countIn } from '../words/work'
import { SearchBox } from './SearchBox'
import { WorkTable } from './WorkTable'
import { PAGE_SIZE, rangeWords, workQuery } from './query'

interface Props {
  place: Place
  status: StatusView | undefined
  queues: readonly QueueView[]
  go: (change: Partial<Place>) => void
}

export function WorkPanel({ place, status, queues, go }: Props) {
  const question = workQuery(place, '')
  const [pages, setPages] = useState<{ question: string; cursors: string[] }>({ question, cursors: [] })
  const cursors = pages.question === question ? pages.cursors : [] // another question begins at its first page
  const live = useLive<WorkloadView>('workloads', workQuery(place, cursors.at(-1) ?? ''))
  const { table } = live
  const turn = (to: string[]) => setPages({ question, cursors: to })

  return (
    <Panel title="Work" className="work" problem={live.problem} aside={<Filters {...{ place, queues, go }} />}>
      <TabRow place={place} status={status} go={go} />
      <div className={live.isStale ? 'work-body stale' : 'work-body'} id="work-list">
        {!table ? (
          <Skeleton rows={8} />
        ) : table.rows.length ? (
          <WorkTable rows={table.rows} place={place} go={go} />
        ) : (
          <NoWork place={place} status={status} go={go} />
        )}
      </div>
      {table && (table.total > PAGE_SIZE || cursors.length > 0) && (
        <nav className="pager" aria-label="Pages of the list">
          <button type="button" disabled={!cursors.length} onClick={() => turn(cursors.slice(0, -1))}>
            Previous
          </button>
          <span>{rangeWords(cursors.length, table.rows.length, table.total)}</span>
          <button type="button" disabled={!table.next} onClick={() => turn([...cursors, table.next])}>
            Next
          </button>
        </nav>
      )}
    </Panel>
  )
}

function TabRow({ place, status, go }: Pick<Props, 'place' | 'status' | 'go'>) {
  return (
    <div className="tabs" role="group" aria-label="Which work is shown">
      {(Object.keys(TABS) as Tab[]).map((tab) => (
        <button
          key={tab}
          type="button"
          aria-pressed={place.tab === tab}
          aria-controls="work-list"
          onClick={() => go({ tab, sort: '' })}
        >
          {TABS[tab].title}
          {status && <span className="tab-count">{count(countIn(tab, status.workloads))}</span>}
        </button>
      ))}
    </div>
  )
}

function Filters({ place, queues, go }: Pick<Props, 'place' | 'queues' | 'go'>) {
  const leaves = queues.filter((queue) => queue.is_leaf)
  return (
    <search className="filters">
      <SearchBox value={place.q} onChange={(q) => go({ q })} />
      <select aria-label="Queue" value={place.queue} onChange={(event) => go({ queue: event.target.value })}>
        <option value="">All queues</option>
        {place.queue && !leaves.some((queue) => queue.name === place.queue) && <option>{place.queue}</option>}
        {leaves.map((queue) => (
          <option key={queue.name}>{queue.name}</option>
        ))}
      </select>
    </search>
  )
}

const NOTHING: Record<Tab, string> = {
  active: 'No work is running or waiting.',
  running: 'No work is running.',
  waiting: 'No work is waiting: every workload has its GPUs.',
  ended: 'No work has ended yet.',
}

function NoWork({ place, status, go }: Pick<Props, 'place' | 'status' | 'go'>) {
  if (place.q || place.queue) {
    return (
      <div className="teach">
        <p>
          No {place.tab} work matches{place.q && ` “${place.q}”`}
          {place.queue && ` in queue ${place.queue}`}.
        </p>
        <button type="button" onClick={() => go({ q: '', queue: '' })}>
          Clear the filters
        </button>
      </div>
    )
  }
  const isEmpty = !status || Object.values(status.workloads).every((number) => !number)
  return (
    <div className="teach">
      <p>{isEmpty ? 'No work yet. Submit some from a terminal, and it appears here:' : NOTHING[place.tab]}</p>
      {isEmpty && <CommandLine>kaiwo submit hello --gpus 1 -- sleep 60</CommandLine>}
    </div>
  )
}
