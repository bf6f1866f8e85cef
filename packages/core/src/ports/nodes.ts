/**
 * Persistence of nodes and of the calls that they have in hand. Rules as in repos.ts. Contract:
 * test/contract/nodes-repo.ts.
 */
import type { Page, PageRequest } from "./page.ts";
import type { NewNodeRun, NodeRecord, NodeRegistration, NodeRun } from "../nodes/node.ts";

export type Registered =
  | { readonly kind: "registered"; readonly node: NodeRecord }
  /** Another node offers a tool of this name with another definition. */
  | { readonly kind: "collision"; readonly tool: string; readonly node: string }
  /** The tenant has as many nodes as it may. */
  | { readonly kind: "full" };

/** What a node is told about the calls that it has in hand. */
export interface RunsSeen {
  /** Those that go on. */
  readonly known: readonly string[];
  /** Those that are to be stopped. */
  readonly cancelled: readonly string[];
}

export interface NodeRepo {
  /**
   * Puts or replaces a node; tools that differ raise the config version. Another process of the name is told
   * that it was replaced, what it gave to prompts is gone, and what was offered to the node and not taken is offered
   * once more.
   */
  register(tenant: string, registration: NodeRegistration): Promise<Registered>;
  /**
   * Takes a node, its tools and what it gave to prompts away, and takes back what it has not begun. `instance`: it
   * leaves by itself, and only where it is still this one; else it is told.
   */
  remove(tenant: string, name: string, instance?: string): Promise<boolean>;
  get(tenant: string, name: string): Promise<NodeRecord | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<NodeRecord>>;
  /** Gives a call to the connected node with the most room. `undefined`: none is connected that offers the tool. */
  offer(tenant: string, run: NewNodeRun): Promise<NodeRun | undefined>;
  run(tenant: string, id: string): Promise<NodeRun | undefined>;
  /** May the node begin? `undefined`: no, it was withdrawn or is not known. Asking again changes nothing. */
  accept(tenant: string, id: string, instance: string, leaseMs: number): Promise<NodeRun | undefined>;
  /** Extends the leases of what a node has in hand, of their calls' rows where nobody waits, and the node's own. */
  extend(tenant: string, instance: string, runs: readonly string[], leaseMs: number): Promise<RunsSeen>;
  /** Keeps a result; the first one stays. `undefined`: the run is not known or not this node's. */
  end(tenant: string, id: string, instance: string, result: string): Promise<NodeRun | undefined>;
  /** Takes back what was not begun, and has what was begun stopped. */
  withdraw(tenant: string, id: string): Promise<NodeRun | undefined>;
  /** Has everything stopped that a call has under way on nodes. Returns those runs. */
  cancelCall(tenant: string, callId: string): Promise<readonly NodeRun[]>;
  /** Runs that are over without anybody who has made use of that, oldest first. */
  late(limit: number): Promise<readonly { readonly tenant: string; readonly run: NodeRun }[]>;
  /** What came of the run has been used, as far as it can be. */
  settle(tenant: string, id: string): Promise<void>;
  /** Removes nodes that stayed away and at most `limit` runs that are over; gives the number of these. */
  expire(limit: number): Promise<number>;
}
