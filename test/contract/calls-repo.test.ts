import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeCallRepo } from "./calls-repo.ts";

describeCallRepo("file", twoInstancesOfFile);
describeCallRepo("server", twoInstancesOfServer);
