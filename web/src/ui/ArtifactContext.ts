/** How anything inside a thread opens one of the thread's files. */

import { createContext, useContext } from "react";
import type { ArtifactPlace } from "../api/artifacts.ts";

export interface Artifacts {
  readonly threadId: string;
  readonly open: (place: ArtifactPlace) => void;
}

export const ArtifactContext = createContext<Artifacts>({ threadId: "", open: () => undefined });

export function useArtifacts(): Artifacts {
  return useContext(ArtifactContext);
}
