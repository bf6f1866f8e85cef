/**
 * Carries one reply from whichever instance receives it to whichever instance waits for it.
 * Contract: test/contract/replies.ts.
 */
export interface Replies {
  /** The first delivery wins; `false` for a later one. A reply may come before anyone waits. */
  deliver(tenant: string, key: string, payload: string): Promise<boolean>;
  /** `undefined` at the deadline. A reply is taken once. */
  wait(
    tenant: string,
    key: string,
    options: { readonly timeoutMs: number; readonly signal?: AbortSignal },
  ): Promise<string | undefined>;
}
