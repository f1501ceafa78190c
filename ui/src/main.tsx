import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { logInByAddress } from './api/session'
import { App } from './page/App'
import './styles/theme.css'
import './styles/page.css'
import './styles/map.css'
import './styles/queues.css'
import './styles/work.css'
import './styles/detail.css'
import './styles/past.css'
import './styles/plugins.css'
import './styles/charts.css'
import './styles/nodes.css'
import './styles/network.css'
import 'uplot/dist/uPlot.min.css'

await logInByAddress()
createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <App />
  </StrictMode>,
)
