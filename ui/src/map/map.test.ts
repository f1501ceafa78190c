import { describe, expect, test } from 'vitest'
import type { GpuView, NodeView, TenantView } from '../api/views'
import { type Box, byLeaf, type Layout, layOut, LEAF_LABEL, SPINE_LABEL, withNodes } from './layout'
import { paint, type Palette, type Scene } from './paint'
import { findPosition, gpuState, nextPosition, parts, positionAt } from './positions'

const nothing = { total: 0, used: 0 }

function gpu(node: string, index: number, fields: Partial<GpuView> = {}): GpuView {
  const shape = { model: 'MI300X', memory_mib: 196_608, free_milli: 1000, free_mib: 196_608, healthy: true }
  const plain = { profile: '', parent: '', change: '', measured: null }
  return { node, id: `gpu-${index}`, index, reason: '', tenants: [], ...shape, ...plain, ...fields }
}

function node(name: string, leaf: string, gpus = 8): NodeView {
  return {
    name,
    state: 'ready',
    reason: '',
    labels: leaf ? { [LEAF_LABEL]: leaf } : {},
    taints: [],
    cpu_milli: nothing,
    memory_mib: nothing,
    pods: nothing,
    gpu_milli: nothing,
    gpus: Array.from({ length: gpus }, (_, index) => gpu(name, index)),
    agent: null,
  }
}

const cluster = (nodes: number, perLeaf: number, gpus = 8) =>
  Array.from({ length: nodes }, (_, index) => node(`node-${index}`, `leaf-${Math.floor(index / perLeaf)}`, gpus))

const overlap = (a: Box, b: Box) =>
  a.x < b.x + b.width - 0.01 && b.x < a.x + a.width - 0.01 && a.y < b.y + b.height - 0.01 && b.y < a.y + a.height - 0.01

describe('the layout', () => {
  test('groups by leaf in the order a person counts, nodes without one last', () => {
    const groups = byLeaf([node('n-10', 'leaf-10'), node('x', ''), node('n-2', 'leaf-2'), node('n-1', 'leaf-2')])
    expect(groups.map((leaf) => [leaf.name, leaf.nodes.map((n) => n.name)])).toEqual([
      ['leaf-2', ['n-1', 'n-2']],
      ['leaf-10', ['n-10']],
      ['', ['x']],
    ])
  })

  test('leaves of one spine stand together below its name, also where two spines have leaves of one name', () => {
    const under = (spine: string, each: NodeView) => ({ ...each, labels: { ...each.labels, [SPINE_LABEL]: spine } })
    const nodes = [under('s10', node('a', 'l1')), under('s2', node('b', 'l2')), under('s2', node('c', 'l1')), node('d', 'l1')]
    const layout = layOut(nodes, 900, 400)
    expect(layout.headings.map((heading) => heading.name)).toEqual(['s2', 's10', 'no spine'])
    expect(layout.blocks.map((block) => block.tiles[0]?.node.name)).toEqual(['c', 'b', 'a', 'd'])
    const [first, second] = [layout.blocks[1]!, layout.headings[1]!]
    expect(second.y).toBeGreaterThanOrEqual(first.y + first.height)
    expect(layOut(nodes.slice(1, 3), 900, 400).headings).toEqual([])
    expect(withNodes(layout, nodes, [under('s2', nodes[0]!), ...nodes.slice(1)])).toBeNull()
  })

  test.each([4, 8, 16, 32])('1,000 nodes, %d a leaf, fit on one screen, each leaf with the part of its name that differs', (perLeaf) => {
    const { height, blocks } = layOut(cluster(1000, perLeaf), 970, 430)
    expect(height).toBeLessThan(600)
    expect(blocks.slice(0, 12).map((block) => block.label)).toEqual(Array.from({ length: 12 }, (_, index) => `${index}`))
    expect(layOut(cluster(8, 4), 940, 420).blocks.map((block) => block.label)).toEqual(['leaf-0', 'leaf-1'])
  })

  test('one group without a label has no heading', () => {
    expect(layOut([node('a', '')], 900, 400).blocks[0]?.name).toBe('')
    expect(layOut([node('a', ''), node('b', 'l')], 900, 400).blocks.map((b) => b.name)).toEqual(['l', 'no leaf'])
  })

  test.each([
    [8, 4, 8, 940],
    [8, 4, 8, 340],
    [40, 5, 8, 940],
    [1000, 16, 8, 940],
    [3, 1, 64, 340],
    [5, 2, 0, 600],
  ])('%d nodes, %d a leaf, %d GPUs: nothing overlaps, nothing is too wide (%d px)', (nodes, perLeaf, gpus, width) => {
    const layout = layOut(cluster(nodes, perLeaf, gpus), width, 420)
    const tiles = layout.blocks.flatMap((block) => block.tiles)
    expect(tiles.length).toBe(nodes)
    for (const tile of tiles) {
      expect(tile.x + tile.width).toBeLessThanOrEqual(width + 0.5)
      expect(tile.y + tile.height).toBeLessThanOrEqual(layout.height + 0.5)
      for (const cell of tile.cells) {
        expect(cell.x + cell.width).toBeLessThanOrEqual(tile.x + tile.width)
        expect(cell.y + cell.height).toBeLessThanOrEqual(tile.y + tile.height)
      }
    }
    const near = tiles.slice(0, 60)
    for (const a of near) for (const b of near) if (a !== b) expect(overlap(a, b)).toBe(false)
  })

  test('a small cluster shows names, a large one does not', () => {
    expect(layOut(cluster(8, 4), 940, 420).size.title).toBeGreaterThan(0)
    expect(layOut(cluster(1000, 16), 940, 420).size.title).toBe(0)
  })

  test('zooming in makes cells larger until they are of the first size', () => {
    const many = cluster(200, 20)
    const widths = [-1, 0, 1, 2, 9].map((zoom) => layOut(many, 1200, 400, zoom).size.cellWidth)
    expect(widths).toEqual([...widths].sort((a, b) => a - b))
    expect(widths.at(-1)).toBe(layOut(cluster(1, 1), 1200, 400).size.cellWidth)
    expect(new Set(widths).size).toBeGreaterThan(1)
  })

  test('an empty cluster is flat', () => expect(layOut([], 900, 400)).toMatchObject({ blocks: [], height: 0 }))
})

describe('a layout with what its nodes are now', () => {
  const nodes = cluster(40, 8)
  const layout = layOut(nodes, 940, 420)
  const busy = { ...nodes[9]!, gpu_milli: { total: 8000, used: 3000 } }
  const changed = nodes.map((each) => (each === nodes[9] ? busy : each))

  test('keeps its rectangles and all tiles but those that changed', () => {
    const now = withNodes(layout, nodes, changed)!
    expect(now.rectangles).toBe(layout.rectangles)
    expect(now.blocks.filter((block, index) => block !== layout.blocks[index]).map((block) => block.name)).toEqual(['leaf-1'])
    expect(now.blocks[1]!.tiles.filter((tile, index) => tile !== layout.blocks[1]!.tiles[index]).map((tile) => tile.node)).toEqual([busy])
    expect(withNodes(layout, nodes, [...nodes])).toBe(layout)
  })

  test('is made anew when nodes come, go, move or have other devices', () => {
    const other = (fields: Partial<NodeView>) => nodes.map((each, index) => (index === 3 ? { ...each, ...fields } : each))
    expect(withNodes(layout, nodes, nodes.slice(1))).toBeNull()
    expect(withNodes(layout, nodes, other({ name: 'new' }))).toBeNull()
    expect(withNodes(layout, nodes, other({ labels: { [LEAF_LABEL]: 'leaf-4' } }))).toBeNull()
    expect(withNodes(layout, nodes, other({ gpus: nodes[3]!.gpus.slice(1) }))).toBeNull()
  })

  test('is drawn again only where something changed', () => {
    const palette = { names: [], font: 'sans-serif' } as unknown as Palette
    const scene = (shown: Layout): Scene => ({
      layout: shown,
      top: 0,
      width: 940,
      height: 2000,
      chosen: new Set(),
      colours: { by: 'allocation', names: [], hasOthers: false },
      found: null,
      cursor: null,
    })
    const first = scene(layout)
    const again = { ...first, layout: withNodes(layout, nodes, changed)! }
    const all = drawn((context) => paint(context, first, palette))
    expect(all.roundRect).toBe(40)
    const some = drawn((context) => paint(context, again, palette, first))
    expect([some.roundRect, some.fillRect]).toEqual([1, 8])
    expect(drawn((context) => paint(context, { ...again, top: 5 }, palette, first)).roundRect).toBe(40)
    expect(drawn((context) => paint(context, { ...again, found: new Set() }, palette, first)).roundRect).toBe(40)
  })
})

/** How often each order of a canvas was given. */
function drawn(draw: (context: CanvasRenderingContext2D) => void): Record<string, number> {
  const calls: Record<string, number> = {}
  const order = (name: string) => () => {
    calls[name] = (calls[name] ?? 0) + 1
    return { width: 10 } // of a text
  }
  draw(new Proxy({}, { get: (_, name) => order(String(name)), set: () => true }) as unknown as CanvasRenderingContext2D)
  return calls
}

describe('positions', () => {
  const layout = layOut(cluster(8, 4), 940, 420)

  test('the pointer finds the device under it, or the node beside it', () => {
    const tile = layout.blocks[1]!.tiles[2]!
    const cell = tile.cells[5]!
    expect(positionAt(layout, cell.x + 3, cell.y + 3)).toEqual({ node: 'node-6', gpu: 5 })
    expect(positionAt(layout, tile.x + 2, tile.y + 2)).toEqual({ node: 'node-6', gpu: -1 })
    expect(positionAt(layout, -5, -5)).toBeNull()
  })

  test('arrow keys reach every device and stop at the ends', () => {
    let position = nextPosition(layout, null, 'right')
    const seen = new Set<string>()
    for (let i = 0; i < 200 && position; i++) {
      seen.add(`${position.node}/${position.gpu}`)
      position = nextPosition(layout, position, 'right')
    }
    expect(seen.size).toBe(64)
    expect(position).toEqual({ node: 'node-7', gpu: 7 })
    expect(nextPosition(layout, { node: 'node-0', gpu: 0 }, 'up')).toEqual({ node: 'node-0', gpu: 0 })
    expect(nextPosition(layout, { node: 'node-1', gpu: 3 }, 'down')).toEqual({ node: 'node-5', gpu: 3 })
    expect(nextPosition(layout, { node: 'node-5', gpu: 3 }, 'first')).toEqual({ node: 'node-0', gpu: 0 })
  })

  test('a position of a node that is gone shows nothing', () => {
    expect(findPosition(layout, { node: 'gone', gpu: 0 })).toBeNull()
    expect(findPosition(layout, { node: 'node-3', gpu: 2 })?.gpu?.id).toBe('gpu-2')
    expect(findPosition(layout, { node: 'node-3', gpu: -1 })?.gpu).toBeNull()
  })
})

describe('a device', () => {
  const tenant = (milli: number, mib: number): TenantView => ({
    workload: 'w',
    pod: 'p',
    milli,
    mib,
    phase: 'running',
    grade: '',
    measured: null,
    queue: '',
    user: '',
  })

  test('is divided by time or memory, whichever is more, and never overfull', () => {
    expect(parts(gpu('n', 0, { tenants: [tenant(500, 98_304), tenant(250, 0)] }))).toEqual([0.5, 0.25])
    expect(parts(gpu('n', 0, { tenants: [tenant(0, 98_304)] }))).toEqual([0.5])
    expect(parts(gpu('n', 0, { tenants: [tenant(1000, 0), tenant(500, 0)] }))).toEqual([1, 0])
  })

  test('has one word', () => {
    expect(gpuState(gpu('n', 0))).toBe('free')
    expect(gpuState(gpu('n', 0, { healthy: false }))).toBe('unhealthy')
    expect(gpuState(gpu('n', 0, { healthy: false, change: 'draining' }))).toBe('draining')
    expect(gpuState(gpu('n', 0, { free_milli: 500, tenants: [tenant(500, 1)] }))).toBe('shared')
    expect(gpuState(gpu('n', 0, { free_milli: 0, tenants: [tenant(1000, 1)] }))).toBe('full')
  })
})
