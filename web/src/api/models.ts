/** The models that a run may use. */

import { call } from "./client.ts";
import type { Model } from "./types.ts";

export async function listModels(): Promise<readonly Model[]> {
  const answer = await call<{ models: readonly Model[] }>("GET", "/api/models");
  return answer.models;
}
