/** Makes the thread's files clickable where an answer only names their paths. */

const PATH = /\/mnt\/user-data\/(?:uploads|outputs|workspace)\/[^\s<>"'`()[\]|]*[^\s<>"'`()[\]|.,;:!?。，；：！？]/g;

interface Node {
  type: string;
  value?: string;
  url?: string;
  children?: Node[];
}

/** A remark plugin. Text inside links and code stays as it is. */
export function linkPaths() {
  return (tree: Node): void => visit(tree);
}

function visit(node: Node): void {
  if (!node.children || node.type === "link") return;
  node.children = node.children.flatMap((child) => (child.type === "text" ? linked(child.value ?? "") : [child]));
  node.children.forEach(visit);
}

function linked(text: string): Node[] {
  const nodes: Node[] = [];
  let end = 0;
  for (const match of text.matchAll(PATH)) {
    if (match.index > end) nodes.push({ type: "text", value: text.slice(end, match.index) });
    nodes.push({ type: "link", url: encodeURI(match[0]), children: [{ type: "text", value: match[0] }] });
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push({ type: "text", value: text.slice(end) });
  return nodes;
}
