import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// The page runs only its own code and talks only to its own server. An HTML artifact in a preview
// frame inherits this policy, so it can neither run scripts nor load anything from elsewhere.
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "font-src 'self' data:",
  "img-src 'self' data: blob: https: http:",
  "media-src 'self' blob:",
  "connect-src 'self'",
  "frame-src 'none'",
  "form-action 'none'",
  "base-uri 'none'",
].join("; ");

function contentSecurityPolicy(): Plugin {
  return {
    name: "content-security-policy",
    apply: "build", // the development server needs an inline script
    transformIndexHtml: () => [
      { tag: "meta", attrs: { "http-equiv": "Content-Security-Policy", content: POLICY }, injectTo: "head-prepend" },
    ],
  };
}

export default defineConfig({
  plugins: [react(), tailwindcss(), contentSecurityPolicy()],
  build: {
    outDir: "../src/deerflow/gateway/static",
    emptyOutDir: true,
    chunkSizeWarningLimit: 600,
  },
  server: {
    proxy: { "/api": process.env.DEERFLOW_URL ?? "http://127.0.0.1:2026" },
  },
  test: { include: ["src/**/*.test.{ts,tsx}"], testTimeout: 60_000 }, // the machine may be busy
} as Parameters<typeof defineConfig>[0]);
