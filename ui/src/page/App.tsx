// The whole page: four streams in, five panels out.

import { useCallback, useEffect } from 'react'
import type { QueueView, StatusView } from '../api/views'
import { Now, useClusterClock } from '../live/clock'
import type { Line } from '../live/follow'
import { useLive, useNodes } from '../live/hooks'
import { MapPanel } from '../map/MapPanel'
import { QueuePanel } from '../queues/QueuePanel'
import { countIn } from '../words/work'
import { Detail } from '../work/Detail'
import { WorkPanel } from '../work/WorkPanel'
import { Header } from './Header'
import { Trouble } from './Panel'
import { Summary } from './Summary'
import { usePlace } from './address'

export function App() {
  const [place, go] = usePlace()
  const statusLive = useLive<StatusView>('status')
  const queueLive = useLive<QueueView>('queues')
  const nodeLive = useNodes()
  const status = statusLive.table?.rows[0]
  const queues = queueLive.table?.rows ?? null
  const line = worst([statusLive.line, queueLive.line, nodeLive.line])
  const now_s = useClusterClock(status?.cluster, statusLive.line === 'live')
  const pick = useCallback((work: string) => go({ work }), [go])
  useTitle(status)

  return (
    <Now value={now_s}>
      <Header cluster={status?.cluster} line={line} now_s={now_s} />
      <main>
        {statusLive.problem && <Trouble>{statusLive.problem}</Trouble>}
        <Summary status={status} />
        <div className={place.work ? 'panels with-detail' : 'panels'}>
          <MapPanel
            nodes={nodeLive.nodes}
            total={nodeLive.total}
            problem={nodeLive.problem}
            chosen={place.work}
            onPick={pick}
          />
          <QueuePanel
            queues={queues}
            clusterMilli={status?.gpu_milli.total ?? 0}
            chosen={place.queue}
            problem={queueLive.problem}
            onChoose={(queue) => go({ queue })}
          />
          <WorkPanel place={place} status={status} queues={queues ?? []} go={go} />
          {place.work && <Detail name={place.work} onClose={() => go({ work: '' })} />}
        </div>
      </main>
      <footer>{status && `Kaiwo ${status.version}`}</footer>
    </Now>
  )
}

function worst(lines: Line[]): Line {
  return lines.find((line) => line === 'reconnecting') ?? lines.find((line) => line === 'connecting') ?? 'live'
}

function useTitle(status: StatusView | undefined): void {
  const words = status && `${countIn('running', status.workloads)} running, ${countIn('waiting', status.workloads)} waiting · Kaiwo`
  useEffect(() => {
    document.title = words ?? 'Kaiwo'
  }, [words])
}
