/** What an error says; on a node whoever reads its log owns the machine. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : "unknown";
}
