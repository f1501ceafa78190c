// A table of plain rows. It scrolls sideways where there is no room for it.

import type { ReactNode } from 'react'

export interface Column<Row> {
  title: string
  cell: (row: Row) => ReactNode
}

interface Props<Row> {
  columns: readonly Column<Row>[] // the first one is the heading of its row
  rows: readonly Row[]
  rowKey: (row: Row) => string | number
  isChosen?: (row: Row) => boolean
}

export function PlainTable<Row>({ columns, rows, rowKey, isChosen }: Props<Row>) {
  return (
    <div className="table-scroll">
      <table className="plain-table">
        <thead>
          <tr>
            {columns.map(({ title }) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)} className={isChosen?.(row) ? 'chosen' : undefined}>
              {columns.map(({ title, cell }, index) =>
                index === 0 ? (
                  <th key={title} scope="row">
                    {cell(row)}
                  </th>
                ) : (
                  <td key={title}>{cell(row)}</td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
