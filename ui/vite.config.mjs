// The page is built into the Python package, which serves it. `npm run dev` shows it against a running `kaiwo up`.
import { defineConfig } from 'vite'

const server = process.env.KAIWO_SERVER ?? 'http://127.0.0.1:7600'

export default defineConfig({
  build: {
    outDir: '../src/kaiwo/api/static',
    emptyOutDir: true,
    target: 'es2022',
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'], // light-dark()
    assetsInlineLimit: 0, // the page's security policy allows no data: addresses
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: {
    proxy: {
      '/api': { target: server, changeOrigin: true },
    },
  },
})
