// What is wrong now, what was, the rules that are evaluated, silences, and where people are told.

import { useState } from 'react'
import { endSilence, silence } from '../api/client'
import type { AlertChannelView, AlertRuleView, AlertRulesView, AlertView, AlertsView, IdentityView, Page, PastAlertsView, SilenceView } from '../api/views'
import { useNow } from '../live/clock'
import { usePolled } from '../live/hooks'
import { AnswerPanel, Nothing } from '../page/AnswerPanel'
import { CommandLine, ErrorMessage } from '../page/Panel'
import { type Column, PlainTable } from '../page/PlainTable'
import { count, counted } from '../words/amounts'
import { span } from '../words/times'
import { SILENCES, ruleState, severityMark } from './words'

const RIGHTS_AGAIN_MS = 60_000
const PAST_SHOWN = 50

export function AlertsPage() {
  const { value: person } = usePolled<IdentityView>('/whoami', RIGHTS_AGAIN_MS)
  const [changes, setChanges] = useState(0)
  const [problem, setProblem] = useState('')
  const mayChange = person?.rights.includes('operate') ?? false
  const change = async (made: Promise<unknown>) => {
    try {
      await made
      setProblem('')
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
    setChanges((before) => before + 1)
  }
  const version = String(changes)
  return (
    <>
      {problem && <ErrorMessage>{problem}</ErrorMessage>}
      <FiringPanel version={version} mayChange={mayChange} change={change} />
      <SilencePanel version={version} mayChange={mayChange} change={change} />
      <PastPanel />
      <RulePanel version={version} />
      {mayChange && <ChannelPanel />}
    </>
  )
}

interface ChangeProps {
  version: string
  mayChange: boolean
  change: (made: Promise<unknown>) => Promise<void>
}

function FiringPanel({ version, mayChange, change }: ChangeProps) {
  const now_s = useNow()
  const columns: Column<AlertView>[] = [
    { title: 'Severity', cell: severityMark },
    { title: 'State', cell: (row) => (row.fired_s ? 'firing' : 'pending') },
    { title: 'For', cell: (row) => span(now_s - row.since_s) },
    {
      title: 'Alert',
      cell: (row) => (
        <>
          {row.summary}
          {row.action && <span className="muted"> See: {row.action}</span>}
        </>
      ),
    },
    { title: 'Rule', cell: (row) => row.rule },
    { title: 'Told', cell: (row) => row.quiet || (row.fired_s ? 'yes' : 'not yet') },
  ]
  if (mayChange) {
    columns.push({ title: 'Tell nobody for', cell: (row) => <SilenceChoice alert={row} change={change} /> })
  }
  return (
    <AnswerPanel<AlertsView> title="Alerts" path="/alerts" version={version}>
      {(view) => (
        <>
          {view.problem && <ErrorMessage>{view.problem}</ErrorMessage>}
          {view.alerts.length ? (
            <PlainTable columns={columns} rows={view.alerts} rowKey={(row) => row.id} />
          ) : (
            <Nothing>{view.evaluated_s ? `Nothing is wrong: none of ${counted(view.rules, 'rule')} holds.` : 'The rules are evaluated for the first time.'}</Nothing>
          )}
        </>
      )}
    </AnswerPanel>
  )
}

function SilenceChoice({ alert, change }: { alert: AlertView; change: ChangeProps['change'] }) {
  return (
    <span className="buttons">
      {Object.entries(SILENCES).map(([words, seconds]) => (
        <button
          key={words}
          type="button"
          aria-label={`Tell nobody of ${alert.rule} of ${alert.subject || 'the cluster'} for ${words}`}
          onClick={() => void change(silence(alert.rule, alert.subject || '*', seconds))}
        >
          {words}
        </button>
      ))}
    </span>
  )
}

function SilencePanel({ version, mayChange, change }: ChangeProps) {
  const now_s = useNow()
  const columns: Column<SilenceView>[] = [
    { title: 'Number', cell: (row) => count(row.id) },
    { title: 'Rule', cell: (row) => row.rule },
    { title: 'Subject', cell: (row) => row.subject },
    { title: 'Ends in', cell: (row) => span(row.until_s - now_s) },
    { title: 'By', cell: (row) => [row.by, row.reason].filter(Boolean).join(': ') },
  ]
  if (mayChange) {
    columns.push({
      title: 'End it',
      cell: (row) => (
        <button type="button" aria-label={`End now: silence ${row.id}`} onClick={() => void change(endSilence(row.id))}>
          End now
        </button>
      ),
    })
  }
  return (
    <AnswerPanel<Page<SilenceView>> title="Silences" path="/alerts/silences" version={version}>
      {({ items }) =>
        items.length ? <PlainTable columns={columns} rows={items} rowKey={(row) => row.id} /> : <Nothing>No alert is silenced.</Nothing>
      }
    </AnswerPanel>
  )
}

function PastPanel() {
  const now_s = useNow()
  const columns: Column<AlertView>[] = [
    { title: 'Severity', cell: severityMark },
    { title: 'Resolved', cell: (row) => `${span(now_s - row.resolved_s)} ago` },
    { title: 'Lasted', cell: (row) => span(row.resolved_s - row.since_s) },
    { title: 'Alert', cell: (row) => row.summary },
    { title: 'Rule', cell: (row) => row.rule },
  ]
  return (
    <AnswerPanel<PastAlertsView> title="Resolved in the last week" path={`/alerts/history?limit=${PAST_SHOWN}`}>
      {({ alerts }) =>
        alerts.length ? (
          <PlainTable columns={columns} rows={alerts} rowKey={(row) => `${row.id} ${row.since_s}`} />
        ) : (
          <Nothing>No alert was resolved in the last week.</Nothing>
        )
      }
    </AnswerPanel>
  )
}

const RULES: Column<AlertRuleView>[] = [
  { title: 'Rule', cell: (row) => row.name },
  { title: 'State', cell: ruleState },
  { title: 'Compares', cell: (row) => row.compares },
  { title: 'Fires after', cell: (row) => span(row.for_s) },
  { title: 'Severity', cell: (row) => row.severity },
  { title: 'From', cell: (row) => (row.is_built_in ? 'Kaiwo' : 'your file') },
]

function RulePanel({ version }: { version: string }) {
  return (
    <AnswerPanel<AlertRulesView> title="Rules" path="/alerts/rules" version={version}>
      {({ rules }) => <PlainTable columns={RULES} rows={rules} rowKey={(row) => row.name} />}
    </AnswerPanel>
  )
}

const CHANNELS: Column<AlertChannelView>[] = [
  { title: 'Channel', cell: (row) => row.name },
  { title: 'Kind', cell: (row) => row.type },
  { title: 'Target', cell: (row) => row.target },
  { title: 'From', cell: (row) => row.severity },
  { title: 'Delivered', cell: (row) => count(row.delivered) },
  { title: 'Waiting', cell: (row) => count(row.waiting) },
  { title: 'Problem', cell: (row) => row.problem || 'none' },
]

function ChannelPanel() {
  return (
    <AnswerPanel<Page<AlertChannelView>> title="Who is told" path="/alerts/channels">
      {({ items }) =>
        items.length ? (
          <PlainTable columns={CHANNELS} rows={items} rowKey={(row) => row.name} />
        ) : (
          <>
            <Nothing>Nobody is told yet. Name channels in a file:</Nothing>
            <CommandLine>kaiwo up --alerts alerts.yaml</CommandLine>
          </>
        )
      }
    </AnswerPanel>
  )
}
