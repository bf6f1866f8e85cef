/** Where in a run a step is, and what bounds it there. */
import type { FlowScope } from "../transform.ts";
import type { WorkingNode } from "./node-values.ts";
import type { Group } from "./threads.ts";

/** What the nodes of a body see. */
export interface Frame {
  readonly scope: FlowScope;
  /** Of its body: `orders[3]/`. */
  readonly prefix: string;
  /** In whose `nodes` it stands, for errors. */
  readonly field: string;
  /** Epoch milliseconds; absent: whenever. */
  readonly deadline: number | undefined;
  readonly group: Group;
}

export interface At {
  readonly id: string;
  readonly node: WorkingNode;
  /** Unlike the node's name, one for each visit: `orders[3]/look#2`. */
  readonly path: string;
  readonly frame: Frame;
  /** Of the step, or of one around it where that is earlier. */
  readonly deadline: number | undefined;
}
