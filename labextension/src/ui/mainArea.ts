import type { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Signal, type ISignal } from '@lumino/signaling';
import { BoxPanel, type Widget } from '@lumino/widgets';

import { gpuIcon } from './icon';
import { loadPart } from './loadPart';
import { addBelow, selectTab } from './notebook7Layout';

/** A view in the main area, with a state that is saved with the workspace. */
export interface MainAreaView extends Widget {
  readonly state: object;
  readonly stateChanged: ISignal<Widget, void>;
  /** Show another state, with defaults in place of invalid values. */
  showState(state: unknown): void;
}

/** Loads the scripts of a view, and returns a function that creates the view with a saved state. */
export type LoadView<View> = () => Promise<(state: unknown) => View>;

/** The contents of a tab. The scripts of its view are loaded when the tab is opened. */
export class TabContent<View extends MainAreaView> extends BoxPanel {
  /** The view; null until its scripts are loaded. */
  view: View | null = null;
  private readonly stateChanges = new Signal<this, void>(this);

  constructor(
    trans: TranslationBundle,
    readonly name: string,
    title: string,
    private firstState: unknown,
    load: LoadView<View>
  ) {
    super();
    this.title.icon = gpuIcon;
    this.title.label = title;
    this.addClass('jp-gpuwidget-tab');
    void loadPart(trans, this.node, load).then(create => {
      if (!this.isDisposed) {
        this.add(create(this.firstState));
      }
    });
  }

  /** What the tab shows; it is saved with the workspace. */
  get state(): ReadonlyPartialJSONObject {
    return { ...(this.view?.state ?? (this.firstState as object | null)) };
  }

  /** Emitted when `state` changes. */
  get stateChanged(): ISignal<this, void> {
    return this.stateChanges;
  }

  /** Show another state. */
  showState(state: unknown): void {
    this.firstState = state;
    if (this.view === null) {
      this.stateChanges.emit();
    } else {
      this.view.showState(state);
    }
  }

  protected override onActivateRequest(): void {
    this.view?.activate();
  }

  private add(view: View): void {
    this.view = view;
    view.stateChanged.connect(() => {
      this.stateChanges.emit();
    });
    this.addWidget(view);
    if (this.node.contains(document.activeElement)) {
      view.activate();
    }
  }
}

/** Where tabs are opened. */
export interface TabsOptions {
  readonly shell: JupyterFrontEnd.IShell;
  /** Null in Notebook 7. */
  readonly labShell: ILabShell | null;
  readonly trans: TranslationBundle;
}

/** The tabs of one kind of view, such as `dashboard`, in the main area, or below the notebook in Notebook 7. */
export class Tabs<View extends MainAreaView> {
  readonly tracker: WidgetTracker<MainAreaWidget<TabContent<View>>>;
  /** The state of the tab that was opened last, also after it is closed. Only the tab named `kind` counts. */
  lastState: object = {};

  constructor(
    private readonly kind: string,
    private readonly options: TabsOptions
  ) {
    this.tracker = new WidgetTracker({ namespace: `gpuwidget-${kind}` });
  }

  /** Return the contents of a tab; undefined if it is not open. */
  find(name: string): TabContent<View> | undefined {
    return this.tracker.find(({ content }) => content.name === name)?.content;
  }

  /** Open a tab. Its state is saved whenever it changes. */
  open(name: string, title: string, state: unknown, load: LoadView<View>): void {
    const { shell, labShell, trans } = this.options;
    const content = new TabContent(trans, name, title, state, load);
    const widget = new MainAreaWidget({ content });
    widget.id = this.widgetId(name);
    // Hide JupyterLab's toolbar. The view has a separate one, whose dropdowns must be inside the view.
    widget.toolbar.hide();
    const save = (): void => {
      if (name === this.kind) {
        this.lastState = content.state;
      }
    };
    save();
    content.stateChanged.connect(() => {
      save();
      void this.tracker.save(widget);
    });
    if (labShell === null) {
      addBelow(shell, widget);
    } else {
      shell.add(widget, 'main', { type: 'GPUs' });
    }
    void this.tracker.add(widget);
  }

  /** Show a tab and focus it. */
  activate(name: string): void {
    const { shell, labShell } = this.options;
    const id = this.widgetId(name);
    const widget = this.tracker.find(each => each.id === id);
    if (labShell === null && widget !== undefined) {
      selectTab(widget);
    }
    shell.activateById(id);
  }

  private widgetId(name: string): string {
    return `gpuwidget-${this.kind}${name === this.kind ? '' : `-${name}`}`;
  }
}
