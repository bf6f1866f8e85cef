/** Processes of the server form killed at every kill point. */
import { describeKillPoints } from "./kill-points.ts";

describeKillPoints();
