// The smallest page around the public `useStream`, unmodified: it shows what the hook knows, and leaves
// the hook itself on the window for the test to call.
import { createElement as element, useState } from "react";
import { createRoot } from "react-dom/client";
import { useMessages, useStream } from "@langchain/react";

const query = new URLSearchParams(location.search);

// With `?held=<word>`, streams whose filter has this word open only when the test calls `open_streams`.
const opened = new Promise((resolve) => {
  window.open_streams = resolve;
});
const send = window.fetch;
window.fetch = async (url, request) => {
  if (query.has("held") && request?.body?.includes(query.get("held"))) await opened;
  return send(url, request);
};

function Subagent({ stream, agent }) {
  const said = useMessages(stream, agent).map((message) => message.text);
  // The hook reads the sub-agent's own namespace once it has found it; before, it guesses one from the call's id.
  const className = agent.namespace.includes(`tools:${agent.id}`) ? "subagent" : "subagent found";
  return element("p", { className }, `${agent.name} ${agent.status}: ${said.join("|")}`);
}

function Chat() {
  const [threadId, setThreadId] = useState(query.get("thread"));
  const stream = useStream({
    assistantId: "lead_agent",
    apiUrl: query.get("api"),
    transport: query.get("transport"),
    threadId,
    onThreadId: setThreadId,
  });
  window.stream = stream;
  const line = (className, key, text) => element("p", { className, key }, text);
  return element(
    "main",
    null,
    element("p", { id: "state" }, stream.isLoading ? "loading" : "idle"),
    element("p", { id: "error" }, stream.error ? String(stream.error.message ?? stream.error) : ""),
    element("p", { id: "thread" }, stream.threadId ?? ""),
    stream.messages.map((message) => line(`message ${message.getType()}`, message.id, message.text)),
    stream.toolCalls.map((call) => line("call", call.id, `${call.name} ${call.status}`)),
    stream.interrupts.map((asked) => line("question", asked.id, JSON.stringify(asked.value))),
    [...stream.subagents.values()].map((agent) => element(Subagent, { key: agent.id, stream, agent })),
  );
}

createRoot(document.getElementById("root")).render(element(Chat));
