// The cycles of the scheduler, the newest first: what each decided and how long it took.

import { useState } from 'react'
import type { CycleView, Page } from '../api/views'
import { useNow } from '../live/clock'
import { usePolled } from '../live/hooks'
import { Panel, Skeleton } from '../page/Panel'
import { type Column, PlainTable } from '../page/PlainTable'
import { count, milliseconds } from '../words/amounts'
import { span } from '../words/times'
import { CycleDetail } from './CycleDetail'

const AGAIN_MS = 5000
const PAGE_SIZE = 50

interface Props {
  chosen: number
  onChoose: (cycle: number) => void // 0: none
  onPick: (workload: string) => void
}

export function DecisionsPage({ chosen, onChoose, onPick }: Props) {
  const [cursors, setCursors] = useState<string[]>([]) // of the pages before this one
  const after = cursors.at(-1) ?? ''
  const path = `/cycles?limit=${PAGE_SIZE}${after && `&after=${encodeURIComponent(after)}`}`
  const { value, problem } = usePolled<Page<CycleView>>(path, AGAIN_MS)
  return (
    <Panel title="Decisions" aside="Cycles in which nothing happened are left out" problem={problem}>
      {chosen > 0 && <CycleDetail key={chosen} number={chosen} onPick={onPick} onClose={() => onChoose(0)} />}
      {!value && !problem && <Skeleton rows={8} />}
      {value && !value.items.length && <p className="teach">No cycle has decided anything yet.</p>}
      {value && value.items.length > 0 && <CycleTable cycles={value.items} chosen={chosen} onChoose={onChoose} />}
      {value && (cursors.length > 0 || value.next) && (
        <nav className="pager" aria-label="Pages of the list">
          <button type="button" disabled={!cursors.length} onClick={() => setCursors(cursors.slice(0, -1))}>
            Newer
          </button>
          <button type="button" disabled={!value.next} onClick={() => setCursors([...cursors, value.next])}>
            Older
          </button>
        </nav>
      )}
    </Panel>
  )
}

function CycleTable({ cycles, chosen, onChoose }: { cycles: readonly CycleView[]; chosen: number; onChoose: (cycle: number) => void }) {
  const now_s = useNow()
  const number = (cycle: CycleView) => (
    <button type="button" className="link" onClick={() => onChoose(cycle.number)}>
      {count(cycle.number)}
    </button>
  )
  const columns: Column<CycleView>[] = [
    { title: 'Cycle', cell: number },
    { title: 'Ago', cell: (cycle) => span(now_s - cycle.at_s) },
    { title: 'Starts', cell: (cycle) => count(cycle.starts) },
    { title: 'Evictions', cell: (cycle) => count(cycle.evictions) },
    { title: 'New reasons', cell: (cycle) => count(cycle.waits) },
    { title: 'Steps', cell: (cycle) => count(cycle.steps) },
    { title: 'Time', cell: (cycle) => milliseconds(cycle.took_ms) },
    { title: 'Notes', cell: (cycle) => cycle.notes.join('; ') },
  ]
  return <PlainTable columns={columns} rows={cycles} rowKey={(cycle) => cycle.number} isChosen={(cycle) => cycle.number === chosen} />
}
