// Walks through the thread streams of the public JS client, unmodified; prints what it saw as JSON.
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: process.argv[2], apiKey: null });
const ask = (text) => ({ messages: [{ type: "human", content: text }] });
const textOf = (message) =>
  typeof message.content === "string" ? message.content : message.content.map((block) => block.text ?? "").join("");
const lastText = (values) => textOf(values.messages.at(-1));

async function collect(stream, take) {
  const all = [];
  for await (const item of stream) all.push(await take(item));
  return all;
}

async function ended(thread, seen) {
  const events = await thread.subscribe(["lifecycle"]);
  for await (const event of events) {
    const { namespace, data } = event.params;
    if (event.seq > seen && namespace.length === 0 && ["completed", "failed", "interrupted"].includes(data.event)) return data.event;
  }
}

async function walk(transport) {
  const seen = {};
  const open = () => client.threads.stream({ assistantId: "lead_agent", transport });

  const first = open();
  const messages = collect(first.messages, (message) => message.text);
  const tools = collect(first.toolCalls, async (call) => [call.name, await call.output]);
  await first.run.start({ input: ask("go") });
  seen.messages = await messages;
  seen.tools = Object.fromEntries(await tools);
  seen.last = lastText((await client.threads.getState(first.threadId)).values);
  await first.close();

  const second = open();
  await second.run.start({ input: ask("ask") });
  await second.output;
  seen.interrupted = second.interrupted;
  const [asked] = second.interrupts;
  seen.asked = asked.payload.action_requests[0].name;
  const before = second.ordering.lastSeenSeq;
  await second.input.respond({
    namespace: asked.namespace,
    interrupt_id: asked.interruptId,
    response: { decisions: [{ type: "approve", hash: asked.payload.hash }] },
  });
  await ended(second, before);
  seen.answered = lastText((await client.threads.getState(second.threadId)).values);
  await second.close();

  const third = open();
  const subagents = collect(third.subagents, (agent) => agent.name);
  await third.run.start({ input: ask("deleg"), config: { configurable: { subagent_enabled: true } } });
  seen.subagents = await subagents;
  await third.close();

  const fourth = open();
  const run = await fourth.run.start({ input: ask("slow") });
  seen.refused = await fourth.submitRun({ input: ask("go"), multitaskStrategy: "reject" }).then(
    () => "accepted",
    (error) => error.code ?? String(error),
  );
  const end = ended(fourth, 0);
  await client.runs.cancel(fourth.threadId, run.run_id, false, "interrupt");
  seen.stopped = await end;
  await fourth.close();
  return seen;
}

console.log(JSON.stringify([await walk("sse"), await walk("websocket")]));
process.exit(0);
