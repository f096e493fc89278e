/** Headings of an answer, fitted into the page: below its own, and never more than one level down at a time. */

const ATX = /^ {0,3}(#{1,6})(?:\s|$)/;
const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const DEEPEST = 6;

/** The depths of the headings that are open at some place, outermost first. */
export type Open = readonly number[];

interface Node {
  type: string;
  depth?: number;
  children?: Node[];
  data?: { hName?: string; hProperties?: { className: string } };
}

/** Return which headings are open at the start of each block of a text. */
export function openAtBlocks(blocks: readonly string[]): readonly Open[] {
  const starts: Open[] = [];
  let open: Open = [];
  for (const block of blocks) {
    starts.push(open);
    open = headingsIn(block).reduce(below, open);
  }
  return starts;
}

/** A remark plugin that draws headings `level` below the page's own; how they look depends on how they were written. */
export function fitHeadings({ level, open }: { readonly level: number; readonly open: Open }) {
  return (tree: Node): void => {
    let now = open;
    const fit = (parent: Node): void => {
      parent.children = parent.children?.filter((node) => node.type !== "heading" || (node.children?.length ?? 0) > 0);
      for (const node of parent.children ?? []) {
        if (node.type === "heading" && node.depth !== undefined) {
          now = below(now, node.depth);
          const drawn = Math.min(level + now.length - 1, DEEPEST);
          node.data = { ...node.data, hName: `h${drawn}`, hProperties: { className: `heading-${node.depth}` } };
        } else fit(node);
      }
    };
    fit(tree);
  };
}

function below(open: Open, depth: number): Open {
  return [...open.filter((other) => other < depth), depth];
}

function headingsIn(block: string): number[] {
  let fence: string | null = null;
  const depths: number[] = [];
  for (const line of block.split("\n")) {
    const mark = FENCE.exec(line)?.[1];
    if (mark && fence === null) fence = mark;
    else if (mark && fence !== null && mark.startsWith(fence)) fence = null;
    const depth = fence === null ? ATX.exec(line)?.[1]?.length : undefined;
    if (depth !== undefined) depths.push(depth);
  }
  return depths;
}
