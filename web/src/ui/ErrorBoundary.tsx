import { Component, type ReactNode } from "react";
import type { Words } from "../text/index.ts";

interface Props {
  readonly words: Words;
  readonly children: ReactNode;
}

/** Catches what a part of the page throws while drawing, so that the rest stays usable. */
export class ErrorBoundary extends Component<Props, { readonly problem: string | null }> {
  override state = { problem: null as string | null };

  static getDerivedStateFromError(error: unknown): { problem: string } {
    return { problem: error instanceof Error ? error.message : String(error) };
  }

  override render(): ReactNode {
    if (this.state.problem === null) return this.props.children;
    const { words } = this.props;
    return (
      <div role="alert" className="m-auto max-w-md space-y-3 p-6 text-center">
        <p className="font-medium">{words.pageFailed}</p>
        <p className="text-sm text-muted">{this.state.problem}</p>
        <button type="button" className="rounded-lg bg-accent px-3 py-1.5 text-sm text-accent-ink" onClick={() => location.reload()}>
          {words.reload}
        </button>
      </div>
    );
  }
}
