// One page of a listing, kept up to date by the events of the stream.
//
// In: `reset` and `delta` events. Out: a new Table; rows that did not change stay the same objects, so that React can skip
// them. Never: changes the table it was given.

export interface Reset<T> {
  view: string
  items: T[]
  total: number
  next: string
  key: string
}

export interface Delta<T> {
  set?: T[]
  gone?: string[]
  order?: string[] | null
  total?: number
  next?: string
}

export interface Table<T> {
  view: string
  rows: readonly T[]
  total: number
  next: string
}

/** What names a row of each view. */
export function keyOf(view: string, row: unknown): string {
  const fields = row as Record<string, unknown>
  if (view === 'gpus') return `${String(fields['node'])}/${String(fields['id'])}`
  if (view === 'status') return 'cluster'
  return String(fields['name'])
}

export function fromReset<T>(reset: Reset<T>): Table<T> {
  return { view: reset.view, rows: reset.items, total: reset.total, next: reset.next ?? '' }
}

export function applyDelta<T>(table: Table<T>, delta: Delta<T>): Table<T> {
  const byKey = new Map(table.rows.map((row) => [keyOf(table.view, row), row]))
  for (const key of delta.gone ?? []) byKey.delete(key)
  for (const row of delta.set ?? []) byKey.set(keyOf(table.view, row), row) // a new row goes to the end until told
  return {
    view: table.view,
    rows: delta.order ? inOrder(byKey, delta.order) : [...byKey.values()],
    total: delta.total ?? table.total,
    next: delta.next ?? table.next,
  }
}

function inOrder<T>(byKey: Map<string, T>, order: string[]): T[] {
  return order.flatMap((key) => {
    const row = byKey.get(key)
    return row === undefined ? [] : [row]
  })
}
