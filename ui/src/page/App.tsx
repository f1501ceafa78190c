// The whole page: four streams in; the overview of the cluster out, or one of the other pages.

import { useCallback, useEffect, useSyncExternalStore } from 'react'
import { AdvicePage } from '../advice/AdvicePage'
import { AlertsPage } from '../alerts/AlertsPage'
import { currentLogin, onLoginChange } from '../api/session'
import type { QueueView, StatusView } from '../api/views'
import { Now, useClusterClock } from '../live/clock'
import type { ConnectionState } from '../live/follow'
import { DecisionsPage } from '../decisions/DecisionsPage'
import { useLive, useNodes } from '../live/hooks'
import { MapPanel } from '../map/MapPanel'
import { NetworkPage } from '../network/NetworkPage'
import { NodeDetail } from '../nodes/NodeDetail'
import { OperationsPage } from '../operations/OperationsPage'
import { PluginPanel } from '../plugins/PluginPanel'
import { QueuePanel } from '../queues/QueuePanel'
import { UsagePage } from '../usage/UsagePage'
import { WhatIfPage } from '../whatif/WhatIfPage'
import { countIn } from '../words/work'
import { Detail } from '../work/Detail'
import { WorkPanel } from '../work/WorkPanel'
import { Header } from './Header'
import { LoginPage } from './LoginPage'
import { ErrorMessage } from './Panel'
import { Summary } from './Summary'
import { usePageState } from './address'

export function App() {
  const login = useSyncExternalStore(onLoginChange, currentLogin)
  if (login === 'in') return <Cluster />
  return (
    <>
      <Header cluster={undefined} connection={null} now_s={0} />
      <main>
        <LoginPage login={login} />
      </main>
    </>
  )
}

function Cluster() {
  const [pageState, go] = usePageState()
  const statusLive = useLive<StatusView>('status')
  const queueLive = useLive<QueueView>('queues')
  const nodeLive = useNodes()
  const status = statusLive.table?.rows[0]
  const queues = queueLive.table?.rows ?? null
  const connection = worst([statusLive.connection, queueLive.connection, nodeLive.connection])
  const now_s = useClusterClock(status?.cluster, statusLive.connection === 'live')
  const pick = useCallback((work: string) => go({ work, node: '' }), [go])
  const pickNode = useCallback((node: string) => go({ node, work: '' }), [go])
  useTitle(status)
  const { page } = pageState

  return (
    <Now value={now_s}>
      <Header cluster={status?.cluster} connection={connection} now_s={now_s} pageState={pageState} />
      <main>
        {statusLive.problem && <ErrorMessage>{statusLive.problem}</ErrorMessage>}
        {page === 'overview' && (
          <>
            <Summary status={status} isMeasured={nodeLive.nodes?.some((node) => node.agent) ?? false} />
            <div className={pageState.work || pageState.node ? 'panels with-detail' : 'panels'}>
              <MapPanel
                nodes={nodeLive.nodes}
                total={nodeLive.total}
                problem={nodeLive.problem}
                chosen={pageState.work}
                onPick={pick}
                onPickNode={pickNode}
              />
              <QueuePanel
                queues={queues}
                clusterMilli={status?.gpu_milli.total ?? 0}
                chosen={pageState.queue}
                problem={queueLive.problem}
                onChoose={(queue) => go({ queue })}
                onHistory={(queue) => go({ page: 'usage', queue })}
              />
              <WorkPanel pageState={pageState} status={status} queues={queues ?? []} go={go} />
              {pageState.work && <Detail name={pageState.work} onClose={() => go({ work: '' })} />}
              {pageState.node && !pageState.work && (
                <NodeDetail name={pageState.node} onPick={pick} onClose={() => go({ node: '' })} />
              )}
            </div>
            <PluginPanel />
          </>
        )}
        {page === 'usage' && <UsagePage queues={queues ?? []} chosen={pageState.queue} onChoose={(queue) => go({ queue })} />}
        {page === 'network' && (
          <NetworkPage chosen={pageState.work} onPick={(work) => go({ page: 'overview', work, node: '' })} />
        )}
        {page === 'decisions' && (
          <DecisionsPage
            chosen={Number(pageState.cycle)}
            onChoose={(cycle) => go({ cycle: cycle ? String(cycle) : '' })}
            onPick={(work) => go({ page: 'overview', work, node: '' })}
          />
        )}
        {page === 'alerts' && <AlertsPage />}
        {page === 'advice' && <AdvicePage onPick={(work) => go({ page: 'overview', work, node: '' })} />}
        {page === 'what-if' && <WhatIfPage queues={queues ?? []} status={status} />}
        {page === 'operations' && (
          <OperationsPage
            onPick={(work) => go({ page: 'overview', work, node: '' })}
            onPickNode={(node) => go({ page: 'overview', node, work: '' })}
          />
        )}
      </main>
      <footer>{status && `Kaiwo ${status.version}`}</footer>
    </Now>
  )
}

function worst(connections: ConnectionState[]): ConnectionState {
  return connections.find((connection) => connection === 'reconnecting') ?? connections.find((connection) => connection === 'connecting') ?? 'live'
}

function useTitle(status: StatusView | undefined): void {
  const words = status && `${countIn('running', status.workloads)} running, ${countIn('waiting', status.workloads)} waiting · Kaiwo`
  useEffect(() => {
    document.title = words ?? 'Kaiwo'
  }, [words])
}
