/** Calls that run without asking: see them and take them back. */

import { call } from "./client.ts";
import type { AllowedCall } from "./types.ts";

export async function listAllowedCalls(): Promise<readonly AllowedCall[]> {
  const answer = await call<{ allowed_calls: readonly AllowedCall[] }>("GET", "/api/allowed-calls");
  return answer.allowed_calls;
}

export function revokeAllowedCall(id: string): Promise<unknown> {
  return call("DELETE", `/api/allowed-calls/${encodeURIComponent(id)}`);
}
